#!/bin/sh
# Creates the users, which own files of the package. They are kept when the package is removed, since files may be left.
set -e
add() { # NAME HOME COMMENT
	getent passwd "$1" >/dev/null || useradd --system --user-group --home-dir "$2" --no-create-home --shell /usr/sbin/nologin --comment "$3" "$1"
}
add coopr /var/lib/coopr "Coopr agent"
add coopr-plugin /nonexistent "Plugins of the Coopr agent"
