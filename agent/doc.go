// Package agent assembles one running agent: it joins the mesh, keeps its part of the
// replicated state, leads when it is elected, carries out tasks, and serves the API.
// This package only connects the parts; their own packages have the work.
package agent
