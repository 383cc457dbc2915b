package mesh

import (
	"fmt"
	"strconv"

	"github.com/hashicorp/memberlist"
)

// The tags on the wire have one letter each, as all tags together must fit in 512 bytes. The meaning of a letter never
// changes.
const (
	tagName            = "n"
	tagRPCAddr         = "r"
	tagAPIAddr         = "a"
	tagBuild           = "b"
	tagFeatureLevel    = "f"
	tagZone            = "z"
	tagClass           = "c"
	tagEligible        = "e"
	tagPluginsHash     = "p"
	tagBootstrapExpect = "x"
	tagEpoch           = "t"
	tagLeaving         = "l"
)

// encodeTags returns the tags of all fields that are not empty.
func encodeTags(self Self, epoch uint64) map[string]string {
	tags := map[string]string{tagEpoch: strconv.FormatUint(epoch, 36)}
	put := func(key, value string) {
		if value != "" {
			tags[key] = value
		}
	}
	put(tagName, self.Name)
	put(tagRPCAddr, self.RPCAddr)
	put(tagAPIAddr, self.APIAddr)
	put(tagBuild, self.Build)
	put(tagZone, self.Zone)
	put(tagClass, self.Class)
	put(tagPluginsHash, self.PluginsHash)
	if self.FeatureLevel != 0 {
		tags[tagFeatureLevel] = strconv.FormatUint(uint64(self.FeatureLevel), 10)
	}
	if self.Eligible {
		tags[tagEligible] = "1"
	}
	if self.Leaving {
		tags[tagLeaving] = "1"
	}
	if self.BootstrapExpect != 0 {
		tags[tagBootstrapExpect] = strconv.Itoa(self.BootstrapExpect)
	}
	return tags
}

// decodeTags returns what an agent announces in its tags, and the agent's epoch. Values that cannot be
// parsed are left zero, because an agent of another version is a member too.
func decodeTags(tags map[string]string) (Self, uint64) {
	level, err := strconv.ParseUint(tags[tagFeatureLevel], 10, 32)
	if err != nil {
		level = 0 // of a number that is too large, ParseUint returns the largest one
	}
	expect, err := strconv.Atoi(tags[tagBootstrapExpect])
	if err != nil {
		expect = 0
	}
	epoch, err := strconv.ParseUint(tags[tagEpoch], 36, 64)
	if err != nil {
		epoch = 0
	}
	return Self{
		Name: tags[tagName], RPCAddr: tags[tagRPCAddr], APIAddr: tags[tagAPIAddr], Build: tags[tagBuild],
		FeatureLevel: uint32(level), Zone: tags[tagZone], Class: tags[tagClass], Eligible: tags[tagEligible] == "1",
		PluginsHash: tags[tagPluginsHash], BootstrapExpect: expect, Leaving: tags[tagLeaving] == "1",
	}, epoch
}

// TagsTooLongError is returned when the tags of an agent do not fit in gossip.
type TagsTooLongError struct {
	Size, Limit int
	Longest     string // the field to shorten, by its name in the configuration
	Length      int
}

func (e *TagsTooLongError) Error() string {
	return fmt.Sprintf("the announcement of this agent has %d bytes, but gossip carries only %d: shorten %s, which has %d",
		e.Size, e.Limit, e.Longest, e.Length)
}

// checkTags checks the size of the tags as serf encodes them: msgpack after a magic byte. The size is an upper bound, by
// up to two bytes for each string.
func checkTags(tags map[string]string) error {
	size, longest := 1+3, tagName
	for key, value := range tags {
		size += 1 + len(key) + 3 + len(value)
		if len(value) > len(tags[longest]) || len(value) == len(tags[longest]) && key < longest {
			longest = key
		}
	}
	if size <= memberlist.MetaMaxSize {
		return nil
	}
	names := map[string]string{
		tagName: "name", tagRPCAddr: "peer.advertise", tagAPIAddr: "http.addr", tagBuild: "the build's version", tagZone: "zone",
		tagClass: "class", tagPluginsHash: "the hash of the plugins",
	}
	return &TagsTooLongError{Size: size, Limit: memberlist.MetaMaxSize, Longest: names[longest], Length: len(tags[longest])}
}
