"""An Azure client that shares no code with Everstep's, for tests: azure-client.py URL COMMAND CONTAINER

create CONTAINER   makes a container
keys CONTAINER     prints [name, ...] as JSON, names as they are stored

Credentials come from AZURE_ACCOUNT and AZURE_KEY."""

import base64
import email.utils
import hashlib
import hmac
import json
import os
import sys
import urllib.parse
import urllib.request
import xml.etree.ElementTree

ACCOUNT = os.environ["AZURE_ACCOUNT"]


def request(url, method, container, query):
    headers = {"x-ms-date": email.utils.formatdate(usegmt=True), "x-ms-version": "2021-12-02"}
    path = urllib.parse.urlsplit(url).path + "/" + container
    canonical = "".join(f"{name}:{value}\n" for name, value in sorted(headers.items()))
    resource = f"/{ACCOUNT}{path}" + "".join(f"\n{name}:{value}" for name, value in sorted(query.items()))
    to_sign = method + "\n" * 12 + canonical + resource
    key = base64.b64decode(os.environ["AZURE_KEY"])
    signature = base64.b64encode(hmac.new(key, to_sign.encode(), hashlib.sha256).digest()).decode()
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{signature}"
    target = f"{url}/{container}?{urllib.parse.urlencode(query)}"
    asked = urllib.request.Request(target, method=method, headers=headers)
    with urllib.request.urlopen(asked) as answer:
        return answer.read()


def keys(url, container):
    marker, names = "", []
    while True:
        query = {"restype": "container", "comp": "list"} | ({"marker": marker} if marker else {})
        document = xml.etree.ElementTree.fromstring(request(url, "GET", container, query))
        names += [blob.text for blob in document.iter("Name")]
        marker = document.findtext("NextMarker") or ""
        if not marker:
            return names


def main(url, command, container):
    if command == "create":
        request(url, "PUT", container, {"restype": "container"})
    elif command == "keys":
        json.dump(keys(url, container), sys.stdout)
    else:
        sys.exit(__doc__)


main(*sys.argv[1:])
