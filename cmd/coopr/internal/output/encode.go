package output

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Encode writes a value as JSON or YAML, with the keys in the order of its JSON.
func Encode(w io.Writer, form string, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return err
	}
	text := escape(b.Bytes())
	if form != FormYAML {
		_, err := w.Write(text)
		return err
	}
	// JSON is also YAML. Reading it as YAML keeps the order of the keys.
	var n yaml.Node
	if err := yaml.Unmarshal(text, &n); err != nil {
		return err
	}
	useBlockStyle(&n)
	y := yaml.NewEncoder(w)
	y.SetIndent(2)
	if err := y.Encode(&n); err != nil {
		return err
	}
	return y.Close()
}

// useBlockStyle removes JSON's braces, and the quotes that YAML does not need.
func useBlockStyle(n *yaml.Node) {
	n.Style = 0
	for _, c := range n.Content {
		useBlockStyle(c)
	}
}

// EncodeLine writes a value as one line of JSON.
func EncodeLine(w io.Writer, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(escape(b.Bytes()))
	return err
}

// unescaped matches the control characters that texts in JSON may have as they are.
var unescaped = regexp.MustCompile(`[\x7f-\x{9f}]`)

// escape returns JSON in which all control characters are escaped, as on a terminal some of them begin commands.
func escape(text []byte) []byte {
	return unescaped.ReplaceAllFunc(text, func(c []byte) []byte {
		r, _ := utf8.DecodeRune(c)
		return fmt.Appendf(nil, `\u%04x`, r)
	})
}
