// The lines in which two texts differ.

export type Line = { sign: ' ' | '+' | '-'; text: string };
/** Piece is a run of lines that are near a difference; skipped is the number of equal lines before it. */
export type Piece = { skipped: number; lines: Line[] };

const around = 3; // equal lines that are shown before and after a difference
const most = 4_000_000; // cells of the table; texts that are larger count as replaced

/** lineDiff returns what leads from one text to another one. It is empty if they are equal. */
export function lineDiff(before: string, after: string): Piece[] {
  return pieces(script(before.split('\n'), after.split('\n')));
}

// The longest common subsequence, without what the beginning and the end have in common.
function script(a: string[], b: string[]): Line[] {
  let from = 0;
  while (from < a.length && from < b.length && a[from] === b[from]) from++;
  let end = 0;
  while (end < a.length - from && end < b.length - from && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
  const x = a.slice(from, a.length - end);
  const y = b.slice(from, b.length - end);
  const line = (sign: Line['sign']) => (text: string): Line => ({ sign, text });
  return [...a.slice(0, from).map(line(' ')), ...middle(x, y), ...a.slice(a.length - end).map(line(' '))];
}

function middle(x: string[], y: string[]): Line[] {
  const out: Line[] = [];
  const width = y.length + 1;
  if (x.length * y.length > most) return [...x.map((text): Line => ({ sign: '-', text })), ...y.map((text): Line => ({ sign: '+', text }))];
  const common = new Uint32Array((x.length + 1) * width);
  for (let i = x.length - 1; i >= 0; i--)
    for (let j = y.length - 1; j >= 0; j--)
      common[i * width + j] = x[i] === y[j] ? common[(i + 1) * width + j + 1] + 1 : Math.max(common[(i + 1) * width + j], common[i * width + j + 1]);
  let i = 0;
  let j = 0;
  while (i < x.length || j < y.length) {
    if (i < x.length && j < y.length && x[i] === y[j]) {
      out.push({ sign: ' ', text: x[i++] });
      j++;
    } else if (j >= y.length || (i < x.length && common[(i + 1) * width + j] >= common[i * width + j + 1])) out.push({ sign: '-', text: x[i++] });
    else out.push({ sign: '+', text: y[j++] });
  }
  return out;
}

function pieces(lines: Line[]): Piece[] {
  const near = lines.map(() => false);
  lines.forEach((l, i) => {
    if (l.sign !== ' ') for (let k = Math.max(0, i - around); k <= Math.min(lines.length - 1, i + around); k++) near[k] = true;
  });
  const out: Piece[] = [];
  let skipped = 0;
  lines.forEach((l, i) => {
    if (!near[i]) skipped++;
    else {
      if (i === 0 || !near[i - 1]) out.push({ skipped, lines: [] });
      out[out.length - 1].lines.push(l);
      skipped = 0;
    }
  });
  return out;
}
