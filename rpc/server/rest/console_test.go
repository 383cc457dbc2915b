package rest

import (
	"net/http/httptest"
	"testing"
)

// Only addresses are this machine for every client, and the one name that browsers do not look up.
func TestNamesLoopback(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "localhost:55054": true, "127.0.0.1": true, "127.0.0.1:55054": true, "127.9.9.9:1": true, "[::1]": true, "[::1]:55054": true,
		"": false, ":55054": false, "localhost.evil.example": false, "127.0.0.1.evil.example:55054": false, "0.0.0.0:55054": false, "[::]": false,
		"192.0.2.1:55054": false, "127.1": false, "2130706433": false, "evil.example": false, "localhost@evil.example": false,
	} {
		r := httptest.NewRequest("GET", "/", nil)
		if r.Host = host; namesLoopback(r) != want {
			t.Errorf("%q: %v", host, !want)
		}
	}
}
