package model

import (
	"strings"
	"testing"
)

func TestNames(t *testing.T) {
	for name, want := range map[string]string{
		"a":                      "",
		"Web_2.internal-x":       "",
		strings.Repeat("a", 255): "",
		strings.Repeat("a", 256): "is 256 characters long: at most 255 are allowed",
		"":                       "is missing: give a name of letters, digits, '.', '_' and '-'",
		"a/b c":                  `"a/b c" contains "/", " ": only letters, digits, '.', '_' and '-' are allowed`,
		"größe":                  `"größe" contains "ö", "ß": only letters, digits, '.', '_' and '-' are allowed`,
		"..":                     `".." means a folder: choose another name`,
	} {
		if got := CheckName(name); got != want {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}
}
