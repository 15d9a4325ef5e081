#!/usr/bin/env bash
# start-radosgw.sh PORT MONITOR_PORT FOLDER: a Ceph of one node on 127.0.0.1 - monitor, one OSD that keeps everything in
# memory, S3 gateway - in the foreground. Keys: S3_ACCESS_KEY, S3_SECRET_KEY. The gateway listens once all is ready.
set -euo pipefail
port=$1 monitor=$2
mkdir -p "$3"/{log,run,mon,osd,rgw}
folder=$(cd "$3" && pwd)
export CEPH_CONF=$folder/ceph.conf
keys=$folder/keyring
cluster=$(cat /proc/sys/kernel/random/uuid)

cat >"$CEPH_CONF" <<CONF
[global]
fsid = $cluster
mon host = v2:127.0.0.1:$monitor
mon initial members = a
public addr = 127.0.0.1
cluster addr = 127.0.0.1
ms bind ipv6 = false
ms cluster mode = crc
ms service mode = crc
ms client mode = crc
keyring = $keys
run dir = $folder/run
admin socket = $folder/run/\$name.asok
pid file = $folder/run/\$name.pid
log file = $folder/log/\$name.log
osd objectstore = memstore
memstore device bytes = 4294967296
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd pool default pgp num = 1
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
osd max object name len = 2048
mon allow pool size one = true
mon max pg per osd = 1000
mon data avail crit = 0
debug mon = 0
debug osd = 0
debug rgw = 0
[mon.a]
mon data = $folder/mon
mon addr = v2:127.0.0.1:$monitor
[osd.0]
osd data = $folder/osd
[client.rgw]
rgw frontends = beast endpoint=127.0.0.1:$port
rgw data = $folder/rgw
rgw run sync thread = false
rgw enable usage log = false
rgw enable ops log = false
rgw dynamic resharding = false
rgw gc max objs = 7
rgw lc max objs = 1
CONF

ceph-authtool --create-keyring "$keys" --gen-key -n mon. --cap mon 'allow *' >/dev/null
ceph-authtool "$keys" --gen-key -n client.admin --cap mon 'allow *' --cap osd 'allow *' >/dev/null
ceph-authtool "$keys" --gen-key -n client.rgw --cap mon 'allow rwx' --cap osd 'allow rwx' >/dev/null
ceph-authtool "$keys" --gen-key -n osd.0 --cap mon 'allow profile osd' --cap osd 'allow *' >/dev/null
monmaptool --create --clobber --addv a "[v2:127.0.0.1:$monitor]" --fsid "$cluster" "$folder/monmap" >/dev/null
ceph-mon --mkfs -i a --monmap "$folder/monmap" --keyring "$keys"
ceph-mon -i a -f >"$folder/log/mon.out" 2>&1 &

osd=$(cat /proc/sys/kernel/random/uuid)
timeout 60 ceph --connect-timeout 30 osd new "$osd" >/dev/null
ceph-osd -i 0 --mkfs --osd-uuid "$osd" >"$folder/log/mkfs.out" 2>&1
ceph-osd -i 0 -f >"$folder/log/osd.out" 2>&1 &
for _ in $(seq 100); do
    timeout 60 ceph --connect-timeout 30 osd stat 2>/dev/null | grep -q '1 up' && break
    sleep 0.2
done

timeout 120 radosgw-admin -n client.rgw user create --uid=test --display-name=test \
    --access-key="$S3_ACCESS_KEY" --secret-key="$S3_SECRET_KEY" >"$folder/log/user.out" 2>&1
radosgw -n client.rgw -f >"$folder/log/rgw.out" 2>&1 &
wait
