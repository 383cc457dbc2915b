package mesh

import (
	"encoding/json"
	"reflect"
	"strconv"
	"testing"
)

// FuzzDecodeTags reads what another agent gossips about itself. What is read comes back when
// it is sent again, and a number that cannot be parsed is zero.
func FuzzDecodeTags(f *testing.F) {
	f.Add("one", "10.0.0.1:55055", "1.2.3", "7", "z", "1", "3", "lk3f")
	f.Add("", "", "", "-1", "", "yes", "99999999999999999999", "3w5e11264sgsg")
	f.Fuzz(func(t *testing.T, name, addr, build, level, zone, flag, expect, epoch string) {
		self, e := decodeTags(map[string]string{
			tagName: name, tagRPCAddr: addr, tagAPIAddr: addr, tagBuild: build, tagFeatureLevel: level, tagZone: zone, tagClass: zone,
			tagEligible: flag, tagLeaving: flag, tagPluginsHash: build, tagBootstrapExpect: expect, tagEpoch: epoch, "unknown": name,
		})
		if again, e2 := decodeTags(encodeTags(self, e)); again != self || e2 != e {
			t.Errorf("%+v in epoch %d comes back as %+v in epoch %d", self, e, again, e2)
		}
		if _, err := strconv.ParseUint(level, 10, 32); err != nil && self.FeatureLevel != 0 {
			t.Errorf("the feature level %q is read as %d", level, self.FeatureLevel)
		}
		if _, err := strconv.Atoi(expect); err != nil && self.BootstrapExpect != 0 {
			t.Errorf("%q expected agents are read as %d", expect, self.BootstrapExpect)
		}
		if _, err := strconv.ParseUint(epoch, 36, 64); err != nil && e != 0 {
			t.Errorf("the epoch %q is read as %d", epoch, e)
		}
	})
}

// FuzzDecodePeers reads files of known agents. A file that is accepted is the same when it is
// written and read again.
func FuzzDecodePeers(f *testing.F) {
	f.Add([]byte(`{"addr":"10.0.0.1:55056","epoch":17,"peers":[{"id":"a","addr":"10.0.0.2:55056"}]}`))
	f.Add([]byte(`{"peers":null}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		file, err := decodePeers(raw)
		if err != nil {
			return
		}
		written, err := json.Marshal(file)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := decodePeers(written); err != nil || !reflect.DeepEqual(again, file) {
			t.Errorf("%+v comes back as %+v: %v", file, again, err)
		}
	})
}
