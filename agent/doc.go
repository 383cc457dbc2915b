// Package agent is one running agent: it joins the mesh, keeps its part of the
// replicated state, leads when it is elected, works, and answers the API. Here
// the parts of the house are wired together; what they do is in their own
// packages.
package agent
