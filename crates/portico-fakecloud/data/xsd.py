"""Makes a description of Rackspace's Cloud Load Balancers v1.0, in the form of Google's discovery documents, from the vendor's schema.

Input: data-model/src/main/resources/META-INF/xsd/LoadBalancerApi.xsd of the repository lbrackspace/atlas-lb, which is the vendor's server
(commit dde84090). There is no WADL, and no description of its JSON. Output: loadbalancers.v1.json beside this file.

    python3 xsd.py .../LoadBalancerApi.xsd > loadbalancers.v1.json

From the schema: every type, its fields, their types and enumerations. A type of elements of one kind is a list in JSON. By hand,
from the vendor's documentation (rackerlabs/docs-cloud-load-balancers) and the validators of its server: paths and their parameters, bounds,
what only the server writes, what a request has to have, and Identity's tokens.
"""

import json
import sys
import xml.etree.ElementTree as ET

XSD = "{http://www.w3.org/2001/XMLSchema}"
PLAIN = {
    "int": {"type": "integer", "format": "int32"}, "long": {"type": "integer"}, "double": {"type": "number"},
    "string": {"type": "string"}, "boolean": {"type": "boolean"}, "dateTime": {"type": "string", "format": "date-time"},
}
root = ET.parse(sys.argv[1]).getroot()


def typed(reference):
    prefix, name = reference.split(":")
    return dict(PLAIN[name]) if prefix == "xsd" else {"$ref": name}


def complex_type(node):
    elements = node.findall(f"{XSD}sequence/{XSD}element")
    attributes = list(node.iter(f"{XSD}attribute"))
    if len(elements) == 1 and elements[0].get("maxOccurs") == "unbounded" and not attributes:
        return {"type": "array", "items": typed(elements[0].get("type"))}
    fields = {field.get("name"): typed(field.get("type")) for field in attributes + elements if field.get("type")}
    if node.find(f"{XSD}simpleContent") is not None:
        fields["value"] = {"type": "string"}
    return {"type": "object", "properties": fields}


schemas = {node.get("name"): complex_type(node) for node in root.findall(f"{XSD}complexType")}
for node in root.findall(f"{XSD}simpleType"):
    values = [value.get("value") for value in node.iter(f"{XSD}enumeration")]
    schemas[node.get("name")] = {"type": "string", "enum": values}

CREATE = "loadBalancers.create"


def fields(schema, names, **more):
    for name in names.split():
        schemas[schema]["properties"][name].update(more)


READ_ONLY = {
    "loadBalancer": "id status cluster created updated sourceAddresses nodeCount isSticky loadBalancerUsage sslTermination",
    "virtualIp": "address", "node": "id status", "networkItem": "id", "meta": "id", "healthMonitor": "id",
}
for schema, names in READ_ONLY.items():
    for name in names.split():
        # Beside `$ref` nothing else would be seen.
        field = schemas[schema]["properties"][name]
        schemas[schema]["properties"][name] = {"allOf": [field], "readOnly": True}
fields("loadBalancer", "name protocol virtualIps", annotations={"required": [CREATE]})
fields("loadBalancer", "name", pattern=".{1,128}")
fields("loadBalancer", "port", minimum=1, maximum=65535)
fields("loadBalancer", "timeout", minimum=1, maximum=120)
fields("loadBalancer", "protocol", enum=(
    "DNS_TCP DNS_UDP FTP HTTP HTTPS IMAPS IMAPv2 IMAPv3 IMAPv4 LDAP LDAPS MYSQL POP3 POP3S SFTP SMTP TCP TCP_CLIENT_FIRST TCP_STREAM "
    "UDP UDP_STREAM").split())
fields("loadBalancer", "algorithm", enum=(
    "LEAST_CONNECTIONS RANDOM ROUND_ROBIN WEIGHTED_LEAST_CONNECTIONS WEIGHTED_ROUND_ROBIN").split())
fields("node", "port", minimum=1, maximum=65535)
fields("node", "weight", minimum=1, maximum=100)
fields("meta", "key", pattern=".{1,32}")
fields("meta", "value", pattern=".{1,256}")
fields("healthMonitor", "delay", minimum=1, maximum=3600)
fields("healthMonitor", "timeout", minimum=1, maximum=300)
fields("healthMonitor", "attemptsBeforeDeactivation", minimum=1, maximum=10)
schemas["healthMonitor"]["required"] = ["type", "delay", "timeout", "attemptsBeforeDeactivation"]
schemas["sessionPersistence"]["required"] = ["persistenceType"]
schemas["node"]["required"] = ["address", "port", "condition"]
schemas["networkItem"]["required"] = ["address", "type"]
schemas["meta"]["required"] = ["key", "value"]
for schema, most in {"nodes": 25, "accessList": 100, "metadata": 25, "virtualIps": 2}.items():
    schemas[schema].update(minItems=1, maxItems=most)
# An answer may have none, and an account may have more nodes than 25 in a balancer.
schemas["nodesShown"] = {"type": "array", "items": {"$ref": "node"}}
update = "name algorithm protocol port timeout halfClosed httpsRedirect".split()
schemas["loadBalancerUpdate"] = {
    "type": "object", "properties": {name: dict(schemas["loadBalancer"]["properties"][name]) for name in update}}
for field in schemas["loadBalancerUpdate"]["properties"].values():
    field.pop("annotations", None)
schemas["loadBalancers"] = {"type": "array", "items": {"$ref": "loadBalancer"}}
text, anything = {"type": "string"}, {"type": "object", "additionalProperties": True}
schemas["apiKeyCredentials"] = {
    "type": "object", "properties": {"username": text, "apiKey": text}, "required": ["username", "apiKey"]}


def under(**field):
    return {"type": "object", "properties": field, "required": list(field)}


def ref(name):
    return {"$ref": name}


def method(identity, verb, path, request=None, response=None, query=None):
    parts = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    parameters = {part: {"location": "path", "required": True, "type": "string", "pattern": "[0-9]+"} for part in parts}
    parameters.update(query or {})
    described = {"id": identity, "httpMethod": verb, "path": path, "parameters": parameters, "response": response or {}}
    return described | ({"request": request} if request else {})


number = {"location": "query", "type": "integer"}
ids = {"id": {"location": "query", "type": "integer", "repeated": True, "required": True}}
pages = {"limit": number, "marker": number, "offset": number, "name": {"location": "query", "type": "string"},
         "status": {"location": "query", "type": "string"}, "nodeaddress": {"location": "query", "type": "string"},
         "changes-since": {"location": "query", "type": "string"}}
ALL = "v1.0/{account}/loadbalancers"
ONE = ALL + "/{loadBalancerId}"
methods = [
    method("tokens.create", "POST", "v2.0/tokens",
           under(auth=under(**{"RAX-KSKEY:apiKeyCredentials": ref("apiKeyCredentials")})), under(access=anything)),
    method("loadBalancers.list", "GET", ALL, None, under(loadBalancers=ref("loadBalancers")), pages),
    method(CREATE, "POST", ALL, under(loadBalancer=ref("loadBalancer")), under(loadBalancer=ref("loadBalancer"))),
    method("loadBalancers.deleteAll", "DELETE", ALL, query=ids),
    method("loadBalancers.get", "GET", ONE, None, under(loadBalancer=ref("loadBalancer"))),
    method("loadBalancers.update", "PUT", ONE, under(loadBalancer=ref("loadBalancerUpdate"))),
    method("loadBalancers.delete", "DELETE", ONE),
    method("nodes.list", "GET", ONE + "/nodes", None, under(nodes=ref("nodesShown"))),
    method("nodes.create", "POST", ONE + "/nodes", under(nodes=ref("nodes")), under(nodes=ref("nodesShown"))),
    method("nodes.deleteAll", "DELETE", ONE + "/nodes", query=ids),
    method("healthMonitor.set", "PUT", ONE + "/healthmonitor", under(healthMonitor=ref("healthMonitor"))),
    method("healthMonitor.delete", "DELETE", ONE + "/healthmonitor"),
    method("sessionPersistence.set", "PUT", ONE + "/sessionpersistence", under(sessionPersistence=ref("sessionPersistence"))),
    method("sessionPersistence.delete", "DELETE", ONE + "/sessionpersistence"),
    method("accessList.create", "POST", ONE + "/accesslist", under(accessList=ref("accessList"))),
    method("accessList.delete", "DELETE", ONE + "/accesslist", query={"id": ids["id"] | {"required": False}}),
]


def references(value):
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for item in value.values():
            yield from references(item)
    elif isinstance(value, list):
        for item in value:
            yield from references(item)


names, used = set(references(methods)), {}
while names:
    name = names.pop()
    used[name] = schemas[name]
    names |= set(references(used[name])) - used.keys()
document = {
    "source": "made by xsd.py from LoadBalancerApi.xsd of lbrackspace/atlas-lb, commit dde84090; what is by hand is said there",
    "basePath": "/", "parameters": {}, "methods": methods, "schemas": used,
}
json.dump(document, sys.stdout, indent=1, sort_keys=True)
print()
