package main

import (
	"slices"
	"testing"
)

func TestFolders(t *testing.T) {
	for settings, want := range map[string][]string{
		``:                            {},
		`{}`:                          {},
		`{"scripts": ["/a", "/b/c"]}`: {"/a", "/b/c"},
		`{"scripts": ["a"]}`:          nil,
		`{"scripts": "/a"}`:           nil,
		`{"script": ["/a"]}`:          nil,
		`[`:                           nil,
	} {
		got, err := folders(settings)
		if (err != nil) != (want == nil) || !slices.Equal(got, want) {
			t.Errorf("%s: %v %v", settings, got, err)
		}
	}
}
