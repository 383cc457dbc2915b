package api

import (
	"os"
	"testing"
)

func TestDocument(t *testing.T) {
	b, err := Document()
	if err != nil {
		t.Fatal(err)
	}
	t.Log(len(b))
	os.WriteFile("/tmp/openapi.json", b, 0o644)
}
