package main

import (
	"slices"
	"testing"
)

func TestSettings(t *testing.T) {
	for text, want := range map[string]*settings{
		``:                            {},
		`{}`:                          {},
		`{"scripts": ["/a", "/b/c"]}`: {Scripts: []string{"/a", "/b/c"}},
		`{"keys": ["/k"]}`:            {Keys: []string{"/k"}},
		`{"scripts": ["a"]}`:          nil,
		`{"keys": ["/a", "b"]}`:       nil,
		`{"scripts": "/a"}`:           nil,
		`{"script": ["/a"]}`:          nil,
		`[`:                           nil,
	} {
		got, err := readSettings(text)
		if (err != nil) != (want == nil) || want != nil && (!slices.Equal(got.Scripts, want.Scripts) || !slices.Equal(got.Keys, want.Keys)) {
			t.Errorf("%s: %v %v", text, got, err)
		}
	}
}
