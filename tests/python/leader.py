"""Two candidates and one Lease: taking, renewing, losing and taking over."""
import datetime

from kubernetes import client, config

config.load_kube_config()
leases = client.CoordinationV1Api()


def now():
    return datetime.datetime.now(datetime.timezone.utc)


def spec(holder, transitions=0):
    return client.V1LeaseSpec(
        holder_identity=holder, lease_duration_seconds=15, acquire_time=now(), renew_time=now(), lease_transitions=transitions)


def attempt(call, *arguments):
    """True, or False when somebody else was faster."""
    try:
        return call(*arguments)
    except client.ApiException as error:
        assert error.status == 409, (error.status, error.body)
        return None


first = attempt(leases.create_namespaced_lease, 'default', client.V1Lease(
    metadata=client.V1ObjectMeta(name='leader'), spec=spec('one')))
assert first.spec.holder_identity == 'one'
assert attempt(leases.create_namespaced_lease, 'default', client.V1Lease(
    metadata=client.V1ObjectMeta(name='leader'), spec=spec('two'))) is None

# Both hold the same version: only one renewal wins.
mine = leases.read_namespaced_lease('leader', 'default')
theirs = leases.read_namespaced_lease('leader', 'default')
mine.spec.renew_time = now()
renewed = attempt(leases.replace_namespaced_lease, 'leader', 'default', mine)
assert renewed.spec.renew_time == mine.spec.renew_time, 'microseconds are kept'
theirs.spec = spec('two', 1)
assert attempt(leases.replace_namespaced_lease, 'leader', 'default', theirs) is None

# With the current version the other takes over.
theirs = leases.read_namespaced_lease('leader', 'default')
theirs.spec = spec('two', 1)
taken = attempt(leases.replace_namespaced_lease, 'leader', 'default', theirs)
assert (taken.spec.holder_identity, taken.spec.lease_transitions) == ('two', 1)
