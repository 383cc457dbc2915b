package raftgroup_test

import "strings"

// containsText reports whether a message for people contains s. Only tests match the text of errors.
func containsText(err error, s string) bool { return strings.Contains(err.Error(), s) }
