"""Create, read, change, watch and delete Services, Nodes and EndpointSlices."""
import threading

from kubernetes import client, config, watch

config.load_kube_config()
core, discovery = client.CoreV1Api(), client.DiscoveryV1Api()


def service(name, **spec):
    ports = [client.V1ServicePort(name='http', port=80, target_port='http')]
    return client.V1Service(
        metadata=client.V1ObjectMeta(name=name, labels={'app': name}),
        spec=client.V1ServiceSpec(ports=ports, selector={'app': name}, **spec))


def fails(status, call, *arguments, **options):
    try:
        call(*arguments, **options)
    except client.ApiException as error:
        assert error.status == status, (error.status, error.body)
        return error
    raise AssertionError(f'{call.__name__} should fail with {status}')


# Create and read
made = core.create_namespaced_service('default', service('web', type='NodePort'))
assert made.spec.cluster_ip.startswith('10.96.'), made.spec.cluster_ip
assert 30000 <= made.spec.ports[0].node_port <= 32767
assert made.metadata.creation_timestamp is not None
assert core.read_namespaced_service('web', 'default').to_dict() == made.to_dict()
fails(409, core.create_namespaced_service, 'default', service('web'))
fails(404, core.read_namespaced_service, 'nothing', 'default')
error = fails(422, core.create_namespaced_service, 'default', service('Bad_Name'))
assert 'metadata.name' in error.body

# List, with selectors and in pages
for n in range(5):
    core.create_namespaced_service('default', service(f's{n}'))
names = [item.metadata.name for item in core.list_namespaced_service('default').items]
assert names == ['kubernetes', 's0', 's1', 's2', 's3', 's4', 'web'], names
found = core.list_service_for_all_namespaces(label_selector='app in (s1,s2)')
assert [item.metadata.name for item in found.items] == ['s1', 's2']
pages, token = [], None
while True:
    page = core.list_namespaced_service('default', limit=3, _continue=token)
    pages.append([item.metadata.name for item in page.items])
    token = page.metadata._continue
    if not token:
        break
assert pages == [names[0:3], names[3:6], names[6:]], pages

# Change: patch, replace, conflict, status
patched = core.patch_namespaced_service('web', 'default', {'metadata': {'labels': {'more': 'yes'}}})
assert patched.metadata.labels == {'app': 'web', 'more': 'yes'}
patched.spec.session_affinity = 'ClientIP'
replaced = core.replace_namespaced_service('web', 'default', patched)
assert replaced.spec.session_affinity_config.client_ip.timeout_seconds == 10800
assert replaced.spec.ports[0].node_port == made.spec.ports[0].node_port
fails(409, core.replace_namespaced_service, 'web', 'default', made)
ingress = {'status': {'loadBalancer': {'ingress': [{'ip': '192.0.2.1'}]}}}
core.patch_namespaced_service('web', 'default', {'spec': {'type': 'LoadBalancer'}})
status = core.patch_namespaced_service_status('web', 'default', ingress)
assert status.status.load_balancer.ingress[0].ip == '192.0.2.1'
dry = core.create_namespaced_service('default', service('dry'), dry_run='All')
assert dry.metadata.name == 'dry'
fails(404, core.read_namespaced_service, 'dry', 'default')

# Watch: everything from a list on
version = core.list_namespaced_service('default').metadata.resource_version
seen, stream = [], watch.Watch()


def follow():
    for event in stream.stream(core.list_namespaced_service, 'default', resource_version=version, timeout_seconds=30):
        seen.append((event['type'], event['object'].metadata.name))
        if len(seen) == 3:
            stream.stop()


thread = threading.Thread(target=follow)
thread.start()
core.create_namespaced_service('default', service('watched'))
core.patch_namespaced_service('watched', 'default', {'metadata': {'labels': {'a': 'b'}}})
core.delete_namespaced_service('watched', 'default')
thread.join(40)
assert seen == [('ADDED', 'watched'), ('MODIFIED', 'watched'), ('DELETED', 'watched')], seen

# Other kinds
core.create_node(client.V1Node(metadata=client.V1ObjectMeta(name='node-a')))
core.patch_node_status('node-a', {'status': {'addresses': [{'type': 'InternalIP', 'address': '10.0.0.1'}]}})
assert core.list_node().items[0].status.addresses[0].address == '10.0.0.1'
discovery.create_namespaced_endpoint_slice('default', client.V1EndpointSlice(
    address_type='IPv4', metadata=client.V1ObjectMeta(name='slice'),
    endpoints=[client.V1Endpoint(addresses=['10.1.0.1'])], ports=[client.DiscoveryV1EndpointPort(port=80)]))
assert discovery.read_namespaced_endpoint_slice('slice', 'default').endpoints[0].addresses == ['10.1.0.1']
assert client.VersionApi().get_code().major == '1'

# Delete, one and all
deleted = core.delete_namespaced_service('web', 'default')
assert deleted.metadata.name == 'web'
core.delete_collection_namespaced_service('default', label_selector='app')
names = [item.metadata.name for item in core.list_namespaced_service('default').items]
assert names == ['kubernetes'], names
