package confine

// Profile describes one program and what it may do. The launcher reads it as JSON from a descriptor,
// so that neither a command line nor an environment shows it.
type Profile struct {
	// Program is the path of the program. If Checked is set, the program is the open file that
	// follows the profile, and Program is only used if that file is a script.
	Program string `json:"program"`
	Checked bool   `json:"checked,omitempty"`
	// Args are the arguments, with the program's name first.
	Args []string `json:"args"`
	// Env is the complete environment.
	Env []string `json:"env"`
	Dir string   `json:"dir"`

	// Reads are files and folders that the program may read and execute, in addition to those of the
	// system. Writes are those that it may also change. Missing ones are skipped.
	Reads  []string `json:"reads,omitempty"`
	Writes []string `json:"writes,omitempty"`
	// Protected are folders that stay closed although an entry of Reads contains them. An entry of
	// Writes must not contain one.
	Protected []string `json:"protected,omitempty"`
	// Landlock applies Reads and Writes. Without it, the rest of the profile still applies.
	Landlock bool `json:"landlock,omitempty"`

	// Lasting is for programs whose children outlive them, as the nodes of the provider local do. Such
	// a program may signal every process of its user, its descendants are not tied to it, and of the
	// limits only that on core dumps applies, because the children inherit the limits for life.
	Lasting bool `json:"lasting,omitempty"`
	// LargeFiles allows files that are larger than the program's own folder may be, because it writes elsewhere, too.
	LargeFiles bool `json:"largeFiles,omitempty"`
	// AsAgent is for the agent's own programs: they stay its user.
	AsAgent bool `json:"-"`
	// User is whom the program runs as. Nil is the user of the agent.
	User   *User  `json:"user,omitempty"`
	Limits Limits `json:"limits"`
	// Signal is sent to the program when its parent dies. Parent is the process id of the parent.
	Signal int `json:"signal,omitempty"`
	Parent int `json:"parent,omitempty"`
}

// User is a user of the system.
type User struct {
	Name string `json:"name"`
	UID  int    `json:"uid"`
	GID  int    `json:"gid"`
	// Groups are the further groups of the user.
	Groups []uint32 `json:"groups,omitempty"`
}

// Limits bound a program with its descendants. 0 is no limit. The kernel enforces Files and, for each
// process, about twice Memory, and Disk, and roughly Processes for a user of plugins. The host counts the sums.
type Limits struct {
	Processes int   `json:"processes,omitempty"`
	Memory    int64 `json:"memory,omitempty"` // bytes
	Files     int   `json:"files,omitempty"`  // open files of one process
	Disk      int64 `json:"disk,omitempty"`   // bytes in the program's own folder
}
