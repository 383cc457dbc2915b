// Package apitest is a mesh for tests of the API and its clients: a small
// store in memory that keeps what it is given, numbers its changes and tells of
// them, behind as many agents as a test asks for. There is no Raft and there
// are no plugins: a test itself says what becomes of a task, and of a run, whose
// tables are those of real meshes.
package apitest
