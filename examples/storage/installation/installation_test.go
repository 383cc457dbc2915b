package installation

import (
	"testing"

	"github.com/coopr/coopr/engine/change/compile"
)

func TestDocument(t *testing.T) {
	d := Document(Config{Servers: 66})
	if len(d.Objects) != 66*ObjectsPerServer {
		t.Fatalf("%d objects", len(d.Objects))
	}
	if _, err := compile.Site(d, compile.Options{}); err != nil {
		t.Fatal(err)
	}
}
