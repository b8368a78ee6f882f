"""Tiny gRPC services, and a client of them that finds them by an xDS server.

    grpc_client.py services NAME...   a service for each name, which answers every call with it; prints their ports as
                                      an object of JSON and goes on until its input ends
    grpc_client.py client             reads orders, a line of JSON each, and answers each with a line:
        {"do": "call", "target": T, "count": N}   N calls one after the other: how often who answered
        {"do": "begin", "target": T}              calls on and on from now on: null
        {"do": "end"}                             no more of them: [when it was answered in seconds since 1970, by whom]
A call that fails was "answered" by the name of its status and its words, after a "!".
"""

import collections
import concurrent.futures
import json
import sys
import threading
import time

import grpc

METHOD = "/lab.Echo/Name"
# Far longer than a call on loopback takes, so that it only ends one that hangs.
PATIENCE = 20


class Service(grpc.GenericRpcHandler):
    def __init__(self, name):
        self.name = name.encode()

    def service(self, _details):
        return grpc.unary_unary_rpc_method_handler(lambda _request, _context: self.name)


def services(names):
    servers, ports = [], {}
    for name in names:
        pool = concurrent.futures.ThreadPoolExecutor(4)
        server = grpc.server(pool, handlers=(Service(name),))
        ports[name] = server.add_insecure_port("127.0.0.1:0")
        server.start()
        servers.append(server)
    print(json.dumps(ports), flush=True)
    sys.stdin.read()


class Client:
    def __init__(self):
        self.stubs = {}
        self.going = None
        self.answers = []

    def stub(self, target):
        if target not in self.stubs:
            self.stubs[target] = grpc.insecure_channel(target).unary_unary(METHOD)
        return self.stubs[target]

    def ask(self, target):
        try:
            return self.stub(target)(b"", timeout=PATIENCE).decode()
        except grpc.RpcError as error:
            return f"!{error.code().name} {error.details()}"

    def call(self, target, count):
        return collections.Counter(self.ask(target) for _ in range(count))

    def begin(self, target):
        self.answers, self.going = [], threading.Event()
        self.thread = threading.Thread(target=self.go_on, args=(target, self.going), daemon=True)
        self.thread.start()

    def go_on(self, target, going):
        while not going.is_set():
            name = self.ask(target)
            self.answers.append((time.time(), name))
            # Some hundreds of calls a second, and time for others on the machine.
            time.sleep(0.001)

    def end(self):
        self.going.set()
        self.thread.join()
        return self.answers


def client():
    one = Client()
    for line in sys.stdin:
        order = json.loads(line)
        print(json.dumps(getattr(one, order.pop("do"))(**order)), flush=True)


if sys.argv[1] == "services":
    services(sys.argv[2:])
else:
    client()
