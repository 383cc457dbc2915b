#!/bin/sh
# Makes this machine an agent of the mesh. It can be run again at any time.
# Argument: the address of this machine. /tmp/coopr-secrets has what "coopr-agent init --out" wrote:
# the file identity on the first machine, a join token on the others.
set -eu

ip=$1
secrets=/tmp/coopr-secrets

id coopr >/dev/null 2>&1 || useradd --system --home-dir /var/lib/coopr --shell /usr/sbin/nologin coopr
install -d -m 0750 -g coopr /etc/coopr
if [ -d "$secrets" ]; then
	install -m 0644 "$secrets/ca.pem" /etc/coopr/ca.pem
	install -m 0600 "$secrets/root-token" /root/.coopr-token
	if [ -f "$secrets/voter-token" ]; then
		install -m 0600 -o coopr "$secrets/voter-token" /etc/coopr/join-token
	fi
	if [ -f "$secrets/identity" ] && [ ! -e /var/lib/coopr/identity ]; then
		install -d -m 0700 -o coopr -g coopr /var/lib/coopr
		install -m 0600 -o coopr -g coopr "$secrets/identity" /var/lib/coopr/identity
	fi
	rm -rf "$secrets"
fi
cat >/etc/coopr/agent.yaml <<EOF
name: $(hostname)
data_dir: /var/lib/coopr
plugin_dir: /usr/local/lib/coopr
http:
  addr: $ip:55054
peer:
  addr: $ip:55055
gossip:
  addr: $ip:55056
EOF
if [ -f /etc/coopr/join-token ]; then
	echo "join_token_file: /etc/coopr/join-token" >>/etc/coopr/agent.yaml
fi

install -d /usr/local/lib/coopr
install -m 0755 /opt/coopr/bin/* /usr/local/lib/coopr/
ln -sf /usr/local/lib/coopr/coopr /usr/local/lib/coopr/coopr-agent /usr/local/bin/
install -m 0644 /opt/coopr/examples/systemd/coopr-agent.service /etc/systemd/system/coopr-agent.service
systemctl daemon-reload
systemctl enable --quiet coopr-agent
systemctl restart coopr-agent

# Lets "vagrant ssh coopr1 -c 'sudo -i coopr members'" work without further settings.
cat >/root/.coopr-profile <<EOF
export COOPR_ADDR=https://$ip COOPR_CACERT=/etc/coopr/ca.pem
COOPR_TOKEN=\$(cat /root/.coopr-token) && export COOPR_TOKEN
EOF
grep -q coopr-profile /root/.profile 2>/dev/null || echo '. /root/.coopr-profile' >>/root/.profile
