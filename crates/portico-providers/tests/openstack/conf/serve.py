"""A WSGI application on an address: python serve.py MODULE ADDRESS [what the application looks for in sys.argv]."""
import importlib
import sys

module, address = sys.argv[1:3]
del sys.argv[1:3]

from waitress import serve

serve(importlib.import_module(module).application, listen=address, threads=4)
