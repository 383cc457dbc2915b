#!/bin/sh
# Makes this machine an agent of the mesh. May run any number of times.
# Arguments: this machine's address, then the addresses of all agents.
set -eu

ip=$1
shift
join=
for other in "$@"; do
	[ "$other" = "$ip" ] || join="$join${join:+, }\"$other:55056\""
done

id coopr >/dev/null 2>&1 || useradd --system --home-dir /var/lib/coopr --shell /usr/sbin/nologin coopr
install -d -m 0750 -g coopr /etc/coopr
if [ -f /tmp/coopr-secrets/join-token ]; then
	install -m 0600 -o coopr /tmp/coopr-secrets/join-token /etc/coopr/join-token
	rm -rf /tmp/coopr-secrets
fi
cat >/etc/coopr/agent.yaml <<EOF
name: $(hostname)
data_dir: /var/lib/coopr
plugin_dir: /usr/local/lib/coopr
bootstrap_expect: 3
join: [$join]
join_token_file: /etc/coopr/join-token
http:
  addr: $ip:55054
peer:
  addr: $ip:55055
gossip:
  addr: $ip:55056
EOF

install -d /usr/local/lib/coopr
install -m 0755 /opt/coopr/bin/* /usr/local/lib/coopr/
ln -sf /usr/local/lib/coopr/coopr /usr/local/bin/coopr
install -m 0644 /opt/coopr/examples/systemd/coopr-agent.service /etc/systemd/system/coopr-agent.service
systemctl daemon-reload
systemctl enable --quiet coopr-agent
systemctl restart coopr-agent
