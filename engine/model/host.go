package model

import "regexp"

var hostPattern = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*\.?$`)

// IsHostName reports whether a text is a host name, with or without a domain.
func IsHostName(name string) bool { return len(name) <= 253 && hostPattern.MatchString(name) }
