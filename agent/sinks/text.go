package sinks

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/coopr/coopr/engine/audit"
)

// Bounds of texts for people, in bytes: of a field of a record, and of a record.
const (
	longestField    = 200
	longestSentence = 1200
)

// oneLine returns a text without line breaks and other characters that nobody sees, so that no name can look like another record, or
// like a header. A long one is cut.
func oneLine(text string) string {
	text = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(text, "�"), func(r rune) bool {
		return unicode.IsSpace(r) || !unicode.IsPrint(r)
	}), " ")
	return cut(text, longestField)
}

// cut cuts a text that has more bytes than allowed.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most] + "…"
}

// what returns what has happened to what, such as "operation.changed create failed, cluster web (00000012)".
func what(r *audit.Record) string {
	out := r.Type
	for _, text := range []string{r.Action, r.Service, r.Subject, r.Status()} {
		if text != "" && !(text == r.Subject && text == r.ClusterName) {
			out += " " + oneLine(text)
		}
	}
	switch {
	case r.ClusterName != "":
		out += fmt.Sprintf(", cluster %s (%s)", oneLine(r.ClusterName), oneLine(r.Cluster))
	case r.Cluster != "":
		out += ", cluster " + oneLine(r.Cluster)
	}
	return out
}

// sentence returns a record as a line for people.
func sentence(r *audit.Record) string {
	out := fmt.Sprintf("%s %s: %s", time.UnixMilli(r.Time).UTC().Format(time.RFC3339), r.Severity(), what(r))
	for _, f := range []struct{ name, value string }{
		{"operation", r.Operation}, {"node", r.Node}, {"tenant", r.Tenant}, {"by", r.Actor}, {"from", r.Source},
	} {
		if f.value != "" {
			out += ", " + f.name + " " + oneLine(f.value)
		}
	}
	if r.Message != "" {
		out += ": " + oneLine(r.Message)
	}
	return cut(out, longestSentence)
}

// headline returns the worst of some records, and how many others there are.
func headline(records []audit.Record) string {
	worst := &records[0]
	for i := range records {
		if r := &records[i]; r.Severity() > worst.Severity() {
			worst = r
		}
	}
	out := fmt.Sprintf("coopr: %s: %s", worst.Severity(), cut(what(worst), longestField))
	switch n := len(records) - 1; n {
	case 0:
		return out
	case 1:
		return out + ", and 1 more record"
	default:
		return fmt.Sprintf("%s, and %d more records", out, n)
	}
}
