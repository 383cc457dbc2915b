package config

import (
	"fmt"
	"reflect"
	"strings"
)

// sample returns docs/agent.yaml, which has every setting with its documentation, commented out and
// set to its default.
func sample() string {
	var b strings.Builder
	b.WriteString(sampleHead)
	defaults := reflect.ValueOf(Default(false))
	walk(reflect.TypeFor[Config](), "", nil, func(path string, f reflect.StructField, index []int, leaf bool) {
		indent := strings.Repeat("  ", strings.Count(path, "."))
		if !strings.Contains(path, ".") {
			b.WriteString("\n")
		}
		for _, line := range wrap(docOf(f), 100-len(indent)) {
			fmt.Fprintf(&b, "%s# %s\n", indent, line)
		}
		name := path[strings.LastIndex(path, ".")+1:]
		switch {
		case !leaf:
			fmt.Fprintf(&b, "%s%s:\n", indent, name)
		case path == "plugins":
			b.WriteString(samplePlugins)
		case path == "directories" || path == "identity_providers":
			fmt.Fprintf(&b, "#%s:\n", path)
			sampleItem(&b, f.Type.Elem(), "#  - ", "#    ")
		case path == "audit.sinks":
			b.WriteString(sampleSinks)
		default:
			fmt.Fprintf(&b, "%s#%s: %s\n", indent, name, sampleValue(defaults.FieldByIndex(index).Interface()))
		}
	})
	return b.String()
}

const sampleHead = `# The configuration of an agent. Every value below is the default; remove the # to change it.
#
# Order of precedence: flags (--http-addr), environment (COOPR_HTTP_ADDR; lists are separated by commas), files in their
# order, defaults. Unknown names are refused. On SIGHUP the agent reads the files again: settings that are marked
# (reload) change at once, others after a restart. The log names both.
#
# The first agent of a mesh needs no setting: "coopr-agent init" makes its identity. Others need join_token_file only: the
# token names voters, and these know where the other agents are (docs/operations.md).
`

const samplePlugins = `#plugins:
#  - name: provider-openstack
#    # Its executable: an absolute path, or a name in plugin_dir. Default: coopr-<name>.
#    path: coopr-provider-openstack
#    # sha256:<hex> of the executable, or of a descriptor followed by its program. Nothing else is started.
#    checksum: sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
#    # Passed to the plugin unchanged, as JSON. They are never shown, as they may contain credentials. The plugin may
#    # read the files and folders that they name by absolute paths.
#    settings:
#      region: north
#    # Further files and folders that the plugin may read and execute, and those that it may change.
#    reads: []
#    writes: []
`

const sampleSinks = `  #sinks:
  #    # Its name, by which the mesh knows how far it has come. A sink of another name begins with the oldest record.
  #  - name: siem
  #    type: syslog
  #    # tls://HOST[:PORT], or tcp://HOST[:PORT] without encryption. UDP loses messages and is not supported.
  #    address: tls://logs.example.com:6514
  #    # Certificates of its CA, in PEM. Default: those of the system.
  #    ca_cert: /etc/ssl/corp.pem
  #  - name: collector
  #    type: webhook
  #    # Lines of JSON are posted to this URL, with https. Plain http is allowed on loopback. Redirects are not followed.
  #    url: https://siem.example.com/coopr
  #    # File with headers of the requests, such as a line Authorization: Bearer SECRET. It is read for each request.
  #    header_file: /etc/coopr/siem-headers
  #    # File with a key, with which a webhook's requests are signed (HMAC-SHA256), 16 bytes or more. It is read for each request.
  #    signature_key_file: /etc/coopr/siem-key
  #    # Types of the records that a sink gets, such as operation.changed or task.*. Default: all.
  #    types: [operation.*, cluster.*]
  #    # Tenants whose records a sink gets. Default: all, and the records of the mesh itself.
  #    tenants: [acme]
  #    # Labels that a record's cluster must have; then the sink gets no records about anything else.
  #    labels: [env=production]
  #    # Least severity of the records that a sink gets: info, warning or error. Default: info, which are all.
  #    severity: warning
  #    # records for lines of JSON, or slack for messages as incoming webhooks of Slack and Mattermost take them.
  #    format: records
  #  - name: people
  #    type: mail
  #    # smtp://HOST[:PORT] with STARTTLS, or smtps://HOST[:PORT] with TLS. On loopback, smtp:// without ca_cert has no encryption.
  #    address: smtps://mail.example.com
  #    from: coopr@example.com
  #    to: [ops@example.com]
  #    # To log in to the server (AUTH PLAIN). The file has the password and is read for each mail.
  #    username: coopr
  #    password_file: /etc/coopr/mail-password
  #    severity: error
  #  - name: local
  #    type: file
  #    # Each leader appends to the file on its own machine: together, those of all eligible agents have every record.
  #    path: /var/log/coopr/audit.jsonl
`

func sampleValue(v any) string {
	switch v := v.(type) {
	case string:
		if v == "" {
			return `""`
		}
		return v
	case []string:
		return "[]"
	case Secret:
		return `""`
	}
	return fmt.Sprint(v)
}

// sampleItem writes an item of a list, with the documentation and an example of each setting.
func sampleItem(b *strings.Builder, t reflect.Type, first, next string) {
	for i := range t.NumField() {
		f := t.Field(i)
		for _, line := range wrap(docOf(f), 100-len(next)) {
			fmt.Fprintf(b, "%s# %s\n", next, line)
		}
		fmt.Fprintf(b, "%s%s: %s\n", first, f.Tag.Get("yaml"), f.Tag.Get("eg"))
		first = next
	}
}

func wrap(text string, width int) (lines []string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}

func docOf(f reflect.StructField) string {
	if f.Tag.Get("reload") == "yes" {
		return f.Tag.Get("doc") + " (reload)"
	}
	return f.Tag.Get("doc")
}
