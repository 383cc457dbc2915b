package api

// ManifestFile is the name of the last file in the archive of an agent's examination, and of that in a debug bundle.
const ManifestFile = "manifest.json"

// BundlePart describes a part of an archive.
type BundlePart struct {
	Name         string `json:"name" doc:"The name of its file"`
	Bytes        int64  `json:"bytes" doc:"The size of its file"`
	Milliseconds int64  `json:"milliseconds" doc:"How long it took to make"`
	Truncated    bool   `json:"truncated,omitempty" doc:"Whether the end is missing, as it was too large"`
	Error        string `json:"error,omitempty" doc:"Why it is missing or not whole"`
}

// AgentManifest describes the archive of an agent's examination.
type AgentManifest struct {
	Agent   string       `json:"agent" doc:"The agent's id"`
	Name    string       `json:"name" doc:"The agent's name"`
	Build   string       `json:"build" doc:"The version of its binary"`
	Time    int64        `json:"time" doc:"When the examination began, in Unix milliseconds by the agent's clock"`
	Seconds int          `json:"seconds" doc:"How long the agent measured"`
	Parts   []BundlePart `json:"parts" doc:"Its files"`
}

// BundleAgent is an agent in the manifest of a debug bundle.
type BundleAgent struct {
	ID     string       `json:"id"`
	Name   string       `json:"name"`
	Status string       `json:"status"` // as gossip has it
	Build  string       `json:"build"`
	Folder string       `json:"folder"`          // in the bundle
	Error  string       `json:"error,omitempty"` // why its archive is missing or not whole
	Parts  []BundlePart `json:"parts,omitempty"`
}

// BundleManifest describes a debug bundle.
type BundleManifest struct {
	Client  string        `json:"client"` // the version of the program that made it
	Time    int64         `json:"time"`   // Unix milliseconds
	Seconds int           `json:"seconds"`
	Agents  []BundleAgent `json:"agents"`
	Mesh    []BundlePart  `json:"mesh"` // of what is about the mesh as a whole
}
