package main

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/coopr/coopr/consensus/state"
)

func TestVersion(t *testing.T) {
	for _, arg := range []string{"--version", "version"} {
		code, out, errs := run(arg)
		if want := fmt.Sprintf("%s, feature level %d\n", runtime.Version(), state.FeatureLevel); code != 0 ||
			!strings.HasPrefix(out, "coopr-agent ") || !strings.HasSuffix(out, want) {
			t.Errorf("%s: %d %q %q", arg, code, out, errs)
		}
	}
}
