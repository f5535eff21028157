"""A watch whose resourceVersion has expired: the server says 410 and the client lists again."""
import sys

from kubernetes import client, config, watch

config.load_kube_config()
core = client.CoreV1Api()


def create(name):
    core.create_namespaced_service('default', client.V1Service(
        metadata=client.V1ObjectMeta(name=name),
        spec=client.V1ServiceSpec(ports=[client.V1ServicePort(port=80)])))


def events(version, count):
    """The names in the next events of a watch, starting over with a list when the version has expired."""
    seen, stream, expired = [], watch.Watch(), False
    while len(seen) < count:
        try:
            for event in stream.stream(core.list_namespaced_service, 'default', resource_version=version, timeout_seconds=20):
                seen.append(event['object'].metadata.name)
                if len(seen) == count:
                    break
        except client.ApiException as error:
            assert error.status == 410 and not expired, (error.status, error.reason)
            expired = True
            found = core.list_namespaced_service('default')
            seen, version = [item.metadata.name for item in found.items], found.metadata.resource_version
    return seen, expired


if sys.argv[1] == 'before':
    print(core.list_namespaced_service('default').metadata.resource_version)
    for n in range(3):
        create(f's{n}')
else:
    seen, expired = events(sys.argv[2], 3)
    assert {'s0', 's1', 's2'} <= set(seen), seen
    print('expired' if expired else 'history was kept')
