package model

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/coopr/coopr/internal/words"
)

var nameRule = regexp.MustCompile(`^[A-Za-z0-9_.-]+$`)

// CheckName returns the fault of a name, or "" (docs/spec/coopr.md 3: [\w.-]+, shorter than
// 256).
func CheckName(name string) string {
	switch {
	case name == "":
		return "is missing: give a name of letters, digits, '.', '_' and '-'"
	case len(name) > 255:
		return fmt.Sprintf("is %d characters long: at most 255 are allowed", len(name))
	case name == "." || name == "..":
		return fmt.Sprintf("%q means a folder: choose another name", name)
	case !nameRule.MatchString(name):
		var bad []string
		for _, r := range name {
			if q := fmt.Sprintf("%q", string(r)); !nameRule.MatchString(string(r)) && !slices.Contains(bad, q) {
				bad = append(bad, q)
			}
		}
		return fmt.Sprintf("%q contains %s: only letters, digits, '.', '_' and '-' are allowed", words.Shorten(name),
			strings.Join(bad[:min(len(bad), 5)], ", "))
	}
	return ""
}

var label = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$`)

// CheckDNSSuffix returns the fault of a suffix of host names, or "". A leading dot is allowed,
// and so is an empty suffix.
func CheckDNSSuffix(suffix string) string {
	suffix = strings.TrimPrefix(suffix, ".")
	if suffix == "" {
		return ""
	}
	if len(suffix) > 189 {
		return "is longer than the 189 characters that leave room for the host's own name"
	}
	for part := range strings.SplitSeq(suffix, ".") {
		if !label.MatchString(part) {
			return fmt.Sprintf("%q is not a name of the DNS: %q must be letters, digits and inner '-', such as \"example.com\"",
				words.Shorten(suffix), words.Shorten(part))
		}
	}
	return ""
}

// The bounds on labels.
const (
	MaxLabels     = 64
	MaxLabelValue = 256 // bytes
)

// CheckLabels returns the faults of labels under a path.
func CheckLabels(path string, labels map[string]string) (fs Faults) {
	if len(labels) > MaxLabels {
		fs.Addf(path, "has %d labels: at most %d are allowed", len(labels), MaxLabels)
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if why := CheckName(key); why != "" {
			fs.Addf(path, "the key %q %s", words.Shorten(key), why)
		}
		if n := len(labels[key]); n > MaxLabelValue {
			fs.Addf(path+"."+words.Shorten(key), "has %d bytes: at most %d are allowed", n, MaxLabelValue)
		}
	}
	return fs
}
