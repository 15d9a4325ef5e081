#!/usr/bin/env bash
# until-stdin-closes.sh FOLDER COMMAND...: runs COMMAND, and as soon as standard input is closed ends all its processes and
# removes FOLDER. Input is closed even when the process that holds its other end is killed, so no server outlives its test.
set -u
folder=$1
shift
exec 3<&0
setsid "$@" </dev/null 3<&- &
group=$!
{
    cat <&3 >/dev/null
    kill -KILL -- "-$group"
} 2>/dev/null &
watcher=$!
wait "$group"
status=$?
kill "$watcher" 2>/dev/null
rm -rf "$folder"
exit "$status"
