// Package yamlfault takes errors of the YAML library apart. The library has the line of a
// syntax error only in the error's text: "yaml: line 3: did not find expected key".
package yamlfault

import (
	"errors"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

var beginning = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// Split returns the line of an error, or 0 if the error names none or several, and the
// message without it.
func Split(err error) (line int, message string) {
	var several *yaml.TypeError
	if errors.As(err, &several) {
		return 0, strings.Join(several.Errors, "; ")
	}
	message = err.Error()
	if m := beginning.FindStringSubmatch(message); m != nil {
		line, _ = strconv.Atoi(m[1])
		message = message[len(m[0]):]
	}
	return line, message
}
