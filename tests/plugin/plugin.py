"""A plugin in Python: load balancers are files of JSON in a folder. Its gRPC code is made from plugin.proto when it starts.

plugin.py --proto plugin.proto --socket /run/x.sock --folder /run/balancers [--flaw NAME] [--log FILE]
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import sys
import tempfile
import threading

import grpc
from google.protobuf import json_format
from grpc_tools import protoc

arguments = argparse.ArgumentParser()
arguments.add_argument("--proto", type=pathlib.Path, required=True)
arguments.add_argument("--socket", required=True)
arguments.add_argument("--folder", type=pathlib.Path, required=True)
# What the plugin does wrong, for tests that have to find it.
arguments.add_argument("--flaw", default="")
# Where each call is written to, as it was understood.
arguments.add_argument("--log", type=pathlib.Path)
arguments = arguments.parse_args()

generated = tempfile.mkdtemp()
wrong = protoc.main(["protoc", f"-I{arguments.proto.parent}", f"--python_out={generated}", f"--grpc_python_out={generated}",
                     str(arguments.proto)])
if wrong:
    sys.exit(f"{arguments.proto} is not what protoc takes")
sys.path.insert(0, generated)
import plugin_pb2 as api  # noqa: E402
import plugin_pb2_grpc as rpc  # noqa: E402

lock = threading.Lock()


def write(path, balancer):
    """All or nothing, whenever the power goes."""
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(balancer, sort_keys=True))
    os.replace(temporary, path)


class Plugin(rpc.ProviderServicer):
    def path(self, request):
        name = request.service.name if arguments.flaw == "by-name" else request.balancer_name
        return arguments.folder / f"{name}.json"

    def log(self, call, request):
        if arguments.log:
            with lock, arguments.log.open("a") as log:
                log.write(json.dumps({"call": call, "request": json_format.MessageToDict(request)}) + "\n")

    def read(self, request):
        try:
            return json.loads(self.path(request).read_text())
        except FileNotFoundError:
            return None

    def balancer(self, kept):
        return api.Balancer(ingress=[api.Ingress(ip=address, mode=api.IP_MODE_PROXY) for address in kept["addresses"]])

    def GetInfo(self, request, context):
        full, refused, ignored = api.SUPPORT_FULL, api.SUPPORT_REFUSED, api.SUPPORT_IGNORED
        return api.Info(
            name="folder", version="0.1", needs_revision=1, abilities=api.Abilities(uses_nodes=True),
            features=api.Features(local=full, source_ranges=full, affinity=ignored, udp=full, mixed_protocols=refused,
                                  ipv6=full, dual_stack=full, node_ports=full))

    def Describe(self, request, context):
        self.log("describe", request)
        kept = self.read(request)
        return api.Description(balancer=self.balancer(kept)) if kept else api.Description()

    def Ensure(self, request, context):
        self.log("ensure", request)
        if len({port.protocol for port in request.ports}) > 1:
            context.set_trailing_metadata((("portico-reason", "MixedProtocols"),))
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "TCP and UDP need a Service each")
        with lock:
            before = self.read(request)
            addresses = before["addresses"] if before and arguments.flaw != "new-address" else self.free(request)
            balancer = {
                "addresses": addresses,
                "ports": [[port.protocol, port.port, port.node_port] for port in request.ports],
                "nodes": self.nodes(request),
                "ranges": list(request.source_ranges),
                "health": [request.health_check.port, request.local],
            }
            write(self.path(request), balancer)
        return self.balancer(balancer)

    def UpdateNodes(self, request, context):
        self.log("update", request)
        with lock:
            balancer = self.read(request)
            if balancer is None:
                context.abort(grpc.StatusCode.NOT_FOUND, "there is no such load balancer")
            balancer["nodes"] = self.nodes(request)
            write(self.path(request), balancer)
        return api.UpdateNodesResponse()

    def Delete(self, request, context):
        self.log("delete", request)
        if arguments.flaw == "leak" and not request.ports:
            return api.DeleteResponse()
        self.path(request).unlink(missing_ok=arguments.flaw != "delete-once")
        return api.DeleteResponse()

    def News(self, request, context):
        # Nothing ever happens, but the stream is there.
        gone = threading.Event()
        context.add_callback(gone.set)
        gone.wait()
        yield from ()

    def nodes(self, request):
        return [node.addresses[0] if node.addresses else node.name for node in request.nodes]

    def free(self, request):
        taken = {address for path in arguments.folder.glob("*.json") for address in json.loads(path.read_text())["addresses"]}
        shapes = {api.FAMILY_IPV4: "198.51.100.{}", api.FAMILY_IPV6: "2001:db8::{:x}"}

        def first(family):
            # What the Service is known by, if the folder was lost; then any.
            known = [ingress.ip for ingress in request.ingress
                     if ingress.ip and (":" in ingress.ip) == (family == api.FAMILY_IPV6)]
            return next(address for address in known + [shapes[family].format(n) for n in range(1, 255)] if address not in taken)

        return [first(family) for family in request.families]


server = grpc.server(concurrent.futures.ThreadPoolExecutor(max_workers=32))
rpc.add_ProviderServicer_to_server(Plugin(), server)
arguments.folder.mkdir(parents=True, exist_ok=True)
pathlib.Path(arguments.socket).unlink(missing_ok=True)
server.add_insecure_port(f"unix:{arguments.socket}")
server.start()
server.wait_for_termination()
