"""Cuts Google's description of the Compute Engine API down to what the tests use.

Input: compute.v1.json of the Python package google-api-python-client 2.202.0 (Apache-2.0), in
googleapiclient/discovery_cache/documents/. Output: compute.v1.json beside this file.

    python3 cut.py .../documents/compute.v1.json > compute.v1.json

Kept as they are: methods with their paths and parameters, schemas with types, formats, enums and patterns. Left out: texts.
What the texts say is kept where a machine can use it: a field whose text begins with "[Output Only]" becomes `readOnly`.
"""

import json
import sys

METHODS = {
    "addresses": ["get", "insert", "delete", "list"],
    "firewalls": ["get", "insert", "patch", "delete", "list"],
    "forwardingRules": ["get", "insert", "delete", "list"],
    "globalOperations": ["get", "wait"],
    "httpHealthChecks": ["get", "insert", "update", "delete", "list"],
    "instances": ["list"],
    "regionOperations": ["get", "wait"],
    "targetPools": [
        "get", "insert", "delete", "list", "addInstance", "removeInstance", "addHealthCheck", "removeHealthCheck",
        "getHealth",
    ],
}
TEXTS = {"description", "enumDescriptions", "enumDeprecated", "documentationLink", "scopes", "flatPath", "parameterOrder"}


def plain(value):
    if isinstance(value, list):
        return [plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    # A property may itself be called "description": texts are strings.
    kept = {key: plain(item) for key, item in value.items() if key not in TEXTS or isinstance(item, dict)}
    if str(value.get("description", "")).lstrip().startswith(("[Output Only]", "Output only", "[Output only]")):
        kept["readOnly"] = True
    return kept


def references(value):
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for item in value.values():
            yield from references(item)
    elif isinstance(value, list):
        for item in value:
            yield from references(item)


document = json.load(open(sys.argv[1]))
methods = [document["resources"][name]["methods"][method] for name, wanted in METHODS.items() for method in wanted]
names, schemas = set(references(methods)), {}
while names:
    name = names.pop()
    schemas[name] = document["schemas"][name]
    names |= set(references(schemas[name])) - schemas.keys()
cut = {
    "source": "google-api-python-client 2.202.0, compute.v1.json, revision " + document["revision"],
    "license": "Apache-2.0",
    "basePath": document["basePath"],
    "parameters": plain(document["parameters"]),
    "methods": [plain(method) for method in methods],
    "schemas": {name: plain(schemas[name]) for name in sorted(schemas)},
}
json.dump(cut, sys.stdout, indent=1, sort_keys=True)
print()
