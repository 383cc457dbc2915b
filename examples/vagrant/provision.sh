#!/bin/sh
# Makes this machine an agent of the mesh. It can be run again at any time.
# Arguments: the address of this machine, then the addresses of all agents.
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
ln -sf /usr/local/lib/coopr/coopr /usr/local/lib/coopr/coopr-agent /usr/local/bin/
install -m 0644 /opt/coopr/examples/systemd/coopr-agent.service /etc/systemd/system/coopr-agent.service
systemctl daemon-reload
systemctl enable --quiet coopr-agent
systemctl restart coopr-agent

# Lets "vagrant ssh coopr1 -c 'sudo -i coopr members'" work without further settings.
cat >/root/.coopr-profile <<'EOF'
export COOPR_ADDR=https://ADDRESS COOPR_CACERT=/etc/coopr/ca.pem
COOPR_TOKEN=$(/usr/local/lib/coopr/coopr-agent token --data-dir /var/lib/coopr) && export COOPR_TOKEN
EOF
sed -i "s/ADDRESS/$ip/" /root/.coopr-profile
grep -q coopr-profile /root/.profile 2>/dev/null || echo '. /root/.coopr-profile' >>/root/.profile
tries=0
until /usr/local/lib/coopr/coopr-agent ca --data-dir /var/lib/coopr >/etc/coopr/ca.pem 2>/dev/null; do
	tries=$((tries + 1))
	[ "$tries" -lt 30 ] || { echo "the agent has not begun: journalctl -u coopr-agent" >&2; exit 1; }
	sleep 1
done
