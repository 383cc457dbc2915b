package raftgroup_test

import "strings"

// containsText is for messages meant for people; code never asks this.
func containsText(err error, s string) bool { return strings.Contains(err.Error(), s) }
