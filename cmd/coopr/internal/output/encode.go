package output

import (
	"bytes"
	"encoding/json"
	"io"

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
	if form != FormYAML {
		_, err := w.Write(b.Bytes())
		return err
	}
	// JSON is also YAML. Reading it as YAML keeps the order of the keys.
	var n yaml.Node
	if err := yaml.Unmarshal(b.Bytes(), &n); err != nil {
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
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
