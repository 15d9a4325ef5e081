"""An S3 client that shares no code with Everstep's, for tests: s3-client.py URL COMMAND BUCKET [KEY]

create BUCKET      makes a bucket
keys BUCKET        prints [[key, bytes], ...] as JSON, keys as they are stored
get BUCKET KEY     writes the object's bytes to standard output
put BUCKET KEY     stores standard input
policy BUCKET JSON      sets the bucket's policy
lifecycle BUCKET JSON   sets the bucket's rules
versions BUCKET         keeps old versions from now on

Credentials come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."""

import json
import sys

import botocore.session
from botocore.config import Config

SETTINGS = Config(
    s3={"addressing_style": "path"},
    retries={"total_max_attempts": 5},
    request_checksum_calculation="when_required",
    response_checksum_validation="when_required",
)


def keys(s3, bucket):
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket)
    return [[item["Key"], item["Size"]] for page in pages for item in page.get("Contents", [])]


def main(url, command, bucket, key=None):
    session = botocore.session.get_session()
    s3 = session.create_client("s3", region_name="us-east-1", endpoint_url=url, config=SETTINGS)
    if command == "create":
        s3.create_bucket(Bucket=bucket)
    elif command == "keys":
        json.dump(keys(s3, bucket), sys.stdout)
    elif command == "get":
        sys.stdout.buffer.write(s3.get_object(Bucket=bucket, Key=key)["Body"].read())
    elif command == "put":
        s3.put_object(Bucket=bucket, Key=key, Body=sys.stdin.buffer.read())
    elif command == "policy":
        s3.put_bucket_policy(Bucket=bucket, Policy=key)
    elif command == "lifecycle":
        s3.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration=json.loads(key))
    elif command == "versions":
        s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    else:
        sys.exit(__doc__)


main(*sys.argv[1:])
