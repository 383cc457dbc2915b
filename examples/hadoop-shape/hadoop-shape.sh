#!/bin/sh
# All actions of all services except base: hadoop-shape.sh PROGRAM PORT. Each service has
# a folder with its programs, settings, data, process id and log.
set -eu
program=$1 port=$2
folder=/opt/hadoop-shape/$COOPR_SERVICE
mkdir -p "$folder"
cd "$folder"

running() {
  [ -s pid ] && tr '\0' ' ' <"/proc/$(cat pid)/cmdline" 2>/dev/null | grep -q "$folder/programs/"
}
ready() {
  curl -fs -o /dev/null --max-time 5 "http://127.0.0.1:$port/"
}

case $COOPR_ACTION in
INSTALL)
  rm -rf programs
  cp -r "$COOPR_ARCHIVES/hadoop-shape" programs
  ;;
CONFIGURE)
  printf '%s' "$SETTINGS" >settings.json.new
  mv settings.json.new settings.json
  ;;
INITIALIZE)
  exec python3 "$folder/programs/$program.py" initialize
  ;;
START)
  # Started means that the service has found its masters and works.
  running || {
    setsid python3 -u "$folder/programs/$program.py" >>log 2>&1 </dev/null &
    echo $! >pid
  }
  for i in $(seq 400); do
    ready && exit 0
    sleep 0.1
    running || break
  done
  tail -n 20 log
  exit 1
  ;;
CHECK)
  running && ready
  ;;
STOP)
  # The service finishes its work; a datanode first copies blocks that no other has.
  for i in $(seq 600); do
    running || exit 0
    kill "$(cat pid)" || true
    sleep 0.1
  done
  tail -n 20 log
  exit 1
  ;;
REMOVE)
  cd /
  rm -rf "$folder"
  ;;
*)
  echo "no such action: $COOPR_ACTION"
  exit 100
  ;;
esac
