// Package sim runs the homes of a site in simulated time, with delays, losses,
// duplicates, reorderings, crashes and moves of homes drawn from a seed, and
// watches the real state of the world for what must never be (docs/spec/changes.md,
// safety S1 to S3).
package sim
