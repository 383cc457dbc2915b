// The clock of relative times. It asks nobody.
export const clock = $state({ now: Date.now() });

setInterval(() => {
  if (!document.hidden) clock.now = Date.now();
}, 1000);
