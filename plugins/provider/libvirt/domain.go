package libvirt

import (
	"encoding/xml"
	"fmt"
	"strings"
	"text/template"

	"github.com/coopr/coopr/plugins/provider/instance"
)

// namespace is the XML namespace of the metadata.
const namespace = "https://github.com/coopr/coopr/libvirt"

// mark is the metadata of a domain. Done reports that its creation was completed.
type mark struct {
	XMLName xml.Name `xml:"https://github.com/coopr/coopr/libvirt node"`
	Tenant  string   `xml:"tenant,attr"`
	Mesh    string   `xml:"mesh,attr"`
	Cluster string   `xml:"cluster,attr"`
	Node    string   `xml:"node,attr"`
	Fence   uint64   `xml:"fence,attr"`
	Key     string   `xml:"key,attr"`
	Pool    string   `xml:"pool,attr"`
	Done    bool     `xml:"done,attr"`
}

func (m *mark) tags() instance.Tags {
	return instance.Tags{Tenant: m.Tenant, Mesh: m.Mesh, Cluster: m.Cluster, Node: m.Node, Fence: m.Fence, Key: m.Key}
}

func markOf(t instance.Tags, pool string, done bool) *mark {
	return &mark{Tenant: t.Tenant, Mesh: t.Mesh, Cluster: t.Cluster, Node: t.Node, Fence: t.Fence, Key: t.Key, Pool: pool, Done: done}
}

// described holds the parts of a domain's XML that are used.
type described struct {
	Name     string `xml:"name"`
	Metadata struct {
		Node *mark `xml:"https://github.com/coopr/coopr/libvirt node"`
	} `xml:"metadata"`
}

// values are the variables of the domain's template.
type values struct {
	Name, Hostname, Type, Pool, Root, Seed, Network, Bridge, Kernel, Initrd, Cmdline string
	CPUs, Mebibytes                                                                  int
	Metadata                                                                         string
}

// plainDomain is the template of domains, unless the field "domain" has another.
const plainDomain = `<domain type='{{.Type}}'>
  <name>{{.Name}}</name>
  <metadata>{{.Metadata}}</metadata>
  <memory unit='MiB'>{{.Mebibytes}}</memory>
  <vcpu>{{.CPUs}}</vcpu>
  <os>
    <type>hvm</type>
    {{- if .Kernel}}
    <kernel>{{.Kernel | xml}}</kernel>
    {{- if .Initrd}}<initrd>{{.Initrd | xml}}</initrd>{{end}}
    <cmdline>{{.Cmdline | xml}}</cmdline>
    {{- else}}
    <boot dev='hd'/>
    {{- end}}
  </os>
  {{- if ne .Type "test"}}
  <features><acpi/></features>
  {{- if eq .Type "kvm"}}<cpu mode='host-model'/>{{end}}
  {{- end}}
  <on_reboot>restart</on_reboot>
  <on_crash>restart</on_crash>
  <devices>
    <disk type='volume' device='disk'><driver name='qemu' type='qcow2'/>
      <source pool='{{.Pool | xml}}' volume='{{.Root | xml}}'/><target dev='vda' bus='virtio'/></disk>
    {{- if .Seed}}
    <disk type='volume' device='disk'><driver name='qemu' type='raw'/>
      <source pool='{{.Pool | xml}}' volume='{{.Seed | xml}}'/><target dev='vdb' bus='virtio'/><readonly/></disk>
    {{- end}}
    {{- if .Bridge}}
    <interface type='bridge'><source bridge='{{.Bridge | xml}}'/><model type='virtio'/></interface>
    {{- else}}
    <interface type='network'><source network='{{.Network | xml}}'/><model type='virtio'/></interface>
    {{- end}}
    {{- if ne .Type "test"}}
    <serial type='pty'/>
    <channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>
    <rng model='virtio'><backend model='random'>/dev/urandom</backend></rng>
    {{- end}}
  </devices>
</domain>
`

func escaped(s string) (string, error) {
	var b strings.Builder
	err := xml.EscapeText(&b, []byte(s))
	return b.String(), err
}

func parseTemplate(text string) (*template.Template, error) {
	return template.New("domain").Option("missingkey=error").Funcs(template.FuncMap{"xml": escaped}).Parse(text)
}

// fill executes the template of a domain's XML and checks the result.
func fill(t *template.Template, v *values) (string, error) {
	var b strings.Builder
	if err := t.Execute(&b, v); err != nil {
		return "", err
	}
	var d described
	if err := xml.Unmarshal([]byte(b.String()), &d); err != nil {
		return "", fmt.Errorf("the domain's XML: %w", err)
	}
	if d.Name != v.Name || d.Metadata.Node == nil {
		return "", fmt.Errorf("the field domain must contain <name>{{.Name}}</name> and <metadata>{{.Metadata}}</metadata>")
	}
	return b.String(), nil
}
