#!/bin/bash
# setup.sh IP: makes an OpenStack of one machine out of Debian's packages: each
# service with one worker, Nova with a hypervisor that only pretends. Run once,
# inside the machine, as root.
set -euo pipefail
ip=$1
export LC_ALL=C
services="keystone glance-api placement-api neutron-api neutron-rpc-server neutron-linuxbridge-agent nova-api nova-conductor nova-scheduler nova-compute"
say() { echo "$(date +%T) $*"; }
as() { local user=$1; shift; su -s /bin/sh "$user" -c "$*"; }
set_in() { # FILE SECTION KEY VALUE …
  local file=$1 section=$2; shift 2
  while [ $# -gt 1 ]; do crudini --set "$file" "$section" "$1" "$2"; shift 2; done
}
# shellcheck disable=SC2086
systemctl stop $services nova-api-metadata mariadb rabbitmq-server 2>/dev/null || true
for ini in /etc/*/*-uwsgi.ini; do [ ! -e "$ini" ] || sed -i 's/^processes *=.*/processes = 1/' "$ini"; done
systemctl start mariadb rabbitmq-server
say databases
for db in keystone glance placement nova_api nova nova_cell0 neutron; do
  mysql -e "create database if not exists $db; grant all on $db.* to 'os'@'localhost' identified by 'os'; grant all on $db.* to 'os'@'127.0.0.1' identified by 'os'"
done
db=mysql+pymysql://os:os@127.0.0.1

set_in /etc/keystone/keystone.conf database connection $db/keystone
set_in /etc/keystone/keystone.conf token provider fernet
keystone-manage fernet_setup --keystone-user keystone --keystone-group keystone
keystone-manage credential_setup --keystone-user keystone --keystone-group keystone
chown -R keystone:keystone /var/log/keystone
as keystone keystone-manage db_sync
url=http://$ip:5000/v3/
keystone-manage bootstrap --bootstrap-password secret --bootstrap-admin-url "$url" --bootstrap-internal-url "$url" --bootstrap-public-url "$url" --bootstrap-region-id regionOne
systemctl start keystone
for _ in $(seq 240); do curl -sf "http://$ip:5000/v3" >/dev/null && break; sleep 0.5; done
say keystone

python3 - "$ip" <<'P'
import sys, openstack
ip = sys.argv[1]
cloud = openstack.connect(auth_url="http://%s:5000/v3" % ip, username="admin", password="secret", project_name="admin",
                          user_domain_name="Default", project_domain_name="Default", region_name="regionOne")
identity = cloud.identity
project = identity.create_project(name="service", domain_id="default")
admin = next(r for r in identity.roles() if r.name == "admin")
for name, kind, port in [("glance", "image", "9292"), ("placement", "placement", "8778"), ("nova", "compute", "8774/v2.1"), ("neutron", "network", "9696")]:
    user = identity.create_user(name=name, password="secret", domain_id="default", default_project_id=project.id)
    identity.put("/projects/%s/users/%s/roles/%s" % (project.id, user.id, admin.id))
    service = identity.create_service(name=name, type=kind)
    for interface in ("public", "internal", "admin"):
        identity.create_endpoint(service_id=service.id, interface=interface, url="http://%s:%s" % (ip, port), region_id="regionOne")
P
say catalogue

login() { # FILE SECTION USER: how a service logs in
  set_in "$1" "$2" auth_type password auth_url "http://$ip:5000" username "$3" password secret project_name service \
    user_domain_name Default project_domain_name Default region_name regionOne
}
nova=/etc/nova/nova.conf neutron=/etc/neutron/neutron.conf
# Credentials limited to some requests are refused by services that do not know their type.
while read -r user type file; do
  login "$file" keystone_authtoken "$user"
  set_in "$file" keystone_authtoken www_authenticate_uri "http://$ip:5000" service_type "$type"
done <<FILES
glance image /etc/glance/glance-api.conf
placement placement /etc/placement/placement.conf
nova compute $nova
neutron network $neutron
FILES
set_in /etc/glance/glance-api.conf database connection $db/glance
set_in /etc/glance/glance-api.conf glance_store stores file,http default_store file
set_in /etc/glance/glance-api.conf paste_deploy flavor keystone
set_in /etc/placement/placement.conf placement_database connection $db/placement
set_in /etc/placement/placement.conf api auth_strategy keystone
set_in $nova database connection $db/nova
set_in $nova api_database connection $db/nova_api
set_in $nova DEFAULT transport_url rabbit://guest:guest@127.0.0.1/ my_ip "$ip" compute_driver fake.MediumFakeDriver \
  osapi_compute_workers 1 metadata_workers 1 vif_plugging_is_fatal false vif_plugging_timeout 0
set_in $nova conductor workers 1
set_in $nova scheduler workers 1
set_in $nova glance api_servers "http://$ip:9292"
# What Nova asks of others for a user is asked with a token of its own in addition to the user's:
# what the user's credentials may do is not asked again.
login $nova service_user nova
set_in $nova service_user send_service_user_token true
login $nova placement placement
login $nova neutron neutron
# The package's own file comes later and says libvirt.
[ ! -e /etc/nova/nova-compute.conf ] || set_in /etc/nova/nova-compute.conf DEFAULT compute_driver fake.MediumFakeDriver
set_in $neutron database connection $db/neutron
set_in $neutron DEFAULT transport_url rabbit://guest:guest@127.0.0.1/ service_plugins "" rpc_workers 1 api_workers 1 rpc_state_report_workers 0 core_plugin ml2
set_in $neutron experimental linuxbridge true
# A worker under uwsgi sleeps between requests, in the middle of a heartbeat too.
for f in $nova $neutron; do set_in $f oslo_messaging_rabbit heartbeat_timeout_threshold 0; done
login $neutron nova nova
ml2=/etc/neutron/plugins/ml2/ml2_conf.ini bridge=/etc/neutron/plugins/ml2/linuxbridge_agent.ini
set_in $ml2 ml2 mechanism_drivers linuxbridge type_drivers flat,local tenant_network_types local extension_drivers port_security
set_in $ml2 ml2_type_flat flat_networks physnet1
set_in $bridge linux_bridge bridge_mappings physnet1:brphys
set_in $bridge vxlan enable_vxlan false
set_in $bridge securitygroup firewall_driver noop enable_security_group false
ip link add brphys type bridge 2>/dev/null || true
ip link set brphys up
say configured

as neutron neutron-db-manage --config-file $neutron --config-file $ml2 upgrade head
as glance glance-manage db_sync
as placement placement-manage db sync
as nova "nova-manage api_db sync && nova-manage cell_v2 map_cell0 && nova-manage cell_v2 create_cell --name cell1 && nova-manage db sync"
say synced
# shellcheck disable=SC2086
systemctl start $services
for _ in $(seq 240); do
  ok=yes
  for port in 8774 9696 9292 8778; do curl -s -o /dev/null "http://$ip:$port/" || ok=; done
  [ "$ok" ] && break
  sleep 0.5
done
for _ in $(seq 60); do
  as nova nova-manage cell_v2 discover_hosts || true
  [ "$(mysql -N -e 'select count(*) from nova_api.host_mappings')" -ge 1 ] && { say ready; exit 0; }
  sleep 2
done
say "no compute host was found"
exit 1
