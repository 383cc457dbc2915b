#!/bin/sh
# Removes the agent's state, its keys and its configuration on purge only. RPM has no purge: what the agent wrote stays there.
set -e
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
if [ "${1:-}" = purge ]; then
	rm -rf /var/lib/coopr /var/lib/coopr-work /var/lib/coopr-keyring /var/log/coopr /etc/coopr
	rm -rf /etc/systemd/system/coopr-agent.service.d /etc/systemd/system/multi-user.target.wants/coopr-agent.service
fi
