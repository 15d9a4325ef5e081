#!/usr/bin/env bash
# until-stdin-closes.sh COMMAND...: runs COMMAND and ends all its processes as soon as standard input is closed, which
# happens even when the process that holds the other end is killed. So no server outlives its test.
set -u
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
exit "$status"
