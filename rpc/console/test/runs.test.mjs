// Runs: what they are made of, their phases and output, nodes that are kept, and the orders on them.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { Agent, Browser, eventually } from './world.mjs';

const evil = '<img src=x onerror=alert(1)>\u202e';

let agent;
let b;
let page;

before(async () => {
  agent = await Agent.start();
  b = await Browser.start(agent);
  page = b.page;
  await b.home();
});
after(async () => {
  await b?.close();
  await agent?.close();
});

const heading = (name) => b.heading(name);
const kind = (name) => page.getByRole('navigation', { name: 'Runs' }).getByRole('link', { name, exact: true }).click();
const row = (name) => page.getByRole('row').filter({ has: page.getByRole('rowheader', { name, exact: true }) });
const run = async () => (await agent.api('GET', '/v1/runs?limit=1'))[0];

/** start starts a run of the program with the script, and returns it. */
async function start(script, profile = 'small') {
  const inline = { name: 'job', steps: [{ name: 'work', on: 'each', script: `#!/bin/sh\n${script}\n` }] };
  return agent.api('POST', '/v1/runs', { inline, profile });
}

test('without runs, each list says what to do', async () => {
  await page.getByRole('navigation', { name: 'Main' }).getByRole('link', { name: 'Runs' }).click();
  await heading('Runs');
  await page.getByText('There are no runs.').waitFor();
  await page.getByText('live', { exact: true }).waitFor();
  await b.good('runs-empty');
  for (const [name, words] of [['Schedules', 'There are no schedules.'], ['Programs', 'There are no stored programs.']]) {
    await kind(name);
    await page.getByText(words).waitFor();
  }
  await kind('Profiles');
  await row('SYSTEM:native').getByText('enabled', { exact: true }).waitFor(); // it always exists
  assert.deepEqual(b.complaints(), []);
});

test('profiles, programs and schedules are listed, and each has a page', async () => {
  await agent.coopr('profile', 'create', 'small', '--provisioner', 'local', '-p', 'numMachines=2', '--keep-failed', '1h', '--keep-killed', '2h');
  await row('USER:small').getByText('1h', { exact: true }).waitFor(); // without a reload
  await b.good('profiles');
  const file = join(agent.dir, 'nightly.yaml');
  writeFileSync(file, `label: ${JSON.stringify(evil)}\nsteps: [{name: count, on: each, script: "#!/bin/sh\\necho counted\\n"}]\n`);
  await agent.coopr('program', 'put', 'count', '-f', file);
  await agent.coopr('schedule', 'put', 'nightly', '--program', 'count', '--cron', '30 2 * * *', '--zone', 'Europe/Berlin', '--profile', 'small');
  await kind('Programs');
  await row('count').getByText(evil).waitFor();
  await b.good('programs');
  await page.getByRole('link', { name: 'count' }).click();
  await heading('count');
  await page.getByText('What its runs have used').waitFor();
  await b.good('program');
  await page.goto(`${agent.url}/#/runs/schedules`);
  await row('nightly').getByText(/^in \d/).waitFor(); // its next run
  await b.good('schedules');
  await page.getByRole('link', { name: 'nightly' }).click();
  await heading('nightly');
  await page.getByText('30 2 * * *', { exact: true }).waitFor();
  await b.good('schedule');
  await agent.coopr('schedule', 'disable', 'nightly');
  await page.getByRole('definition').getByText('disabled', { exact: true }).waitFor();
  await page.goto(`${agent.url}/#/runs/profiles/USER:small`);
  await page.getByText('What its runs have used').waitFor();
  await b.good('profile');
  assert.equal(await page.locator('main img').count(), 0);
  assert.deepEqual(b.complaints(), []);
});

test('a run is watched, and the nodes of a failed one are kept, kept longer and deleted', async () => {
  const gate = join(agent.dir, 'gate');
  const { id } = await start(`echo "${evil}"\nuntil [ -e '${gate}' ]; do sleep 0.1; done\nexit 3`);
  await page.goto(`${agent.url}/#/runs`);
  await row('job').getByText('running', { exact: true }).waitFor();
  await page.getByRole('link', { name: 'job' }).click();
  await heading('Run of job');
  await row('Make the nodes').getByText('succeeded', { exact: true }).waitFor();
  await row('Carry out the program').getByText('running', { exact: true }).waitFor();
  await page.getByLabel('Output', { exact: true }).getByText(evil).first().waitFor(); // while it runs
  await b.good('run-running');
  writeFileSync(gate, '');
  await row('Carry out the program').getByText('failed', { exact: true }).waitFor();
  await page.getByText(/^The nodes are kept, and are deleted in /).waitFor();
  // The exit codes of the nodes on which it failed before the others were stopped.
  assert.ok((await page.getByRole('listitem').filter({ hasText: 'work, ' }).count()) >= 1);
  await b.good('run-kept');
  await page.getByLabel('Keep them until').selectOption('3 days from now');
  await page.getByRole('button', { name: 'Extend' }).click();
  await page.getByText(/^The nodes are kept, and are deleted in (2d 23h|3d)/).waitFor();
  await eventually('it is kept for three days', async () => (await run()).cluster.expiresAt > Date.now() + 2.9 * 86400e3);
  await page.getByLabel('Keep them until').selectOption('somebody deletes them');
  await page.getByRole('button', { name: 'Extend' }).click();
  await page.getByText('The nodes are kept until somebody deletes them.').waitFor();
  await page.goto(`${agent.url}/#/runs?status=kept`);
  await row('job').getByText('by somebody only').waitFor();
  await b.good('runs');
  await page.goto(`${agent.url}/#/run/${id}`);
  await page.getByRole('button', { name: 'Delete the nodes …' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByText('2 nodes with everything on them are removed.').waitFor();
  await b.good('run-delete');
  await dialog.getByRole('button', { name: 'Delete the nodes' }).click();
  await row('Delete the nodes').getByText('completed', { exact: true }).waitFor();
  assert.equal(await page.getByRole('button', { name: 'Extend' }).count(), 0);
  await page.reload(); // its output and its times stay
  await page.getByLabel('Output', { exact: true }).getByText(evil).first().waitFor();
  await page.getByText('live', { exact: true }).waitFor();
  assert.equal(await page.getByRole('alert').count(), 0);
  await b.good('run-over');
  await page.goto(`${agent.url}/#/runs?status=kept`);
  await page.getByText('No run matches.').waitFor();
  assert.equal(await page.locator('main img').count(), 0);
  assert.deepEqual(b.complaints(), []);
});

test('a run is stopped, and its nodes are deleted or kept', async () => {
  for (const [order, end] of [['Stop', 'deprovisioned'], ['Stop, keep the nodes', 'kept']]) {
    const { id } = await start('sleep 600');
    await page.goto(`${agent.url}/#/run/${id}`);
    await row('Carry out the program').getByText('running', { exact: true }).waitFor();
    await page.getByRole('button', { name: `${order} …`, exact: true }).click();
    await page.getByRole('dialog').getByRole('button', { name: order, exact: true }).click();
    await row('Carry out the program').getByText('killed', { exact: true }).waitFor();
    await eventually(`its nodes are ${end}`, async () => (await run()).cluster.status === (end === 'kept' ? 'WAITING' : 'DEPROVISIONED'));
  }
  await page.getByText(/^The nodes are kept, and are deleted in /).waitFor();
  await page.goto(`${agent.url}/#/runs?q=by=dev&status=KILLED`);
  await page.getByText('2 runs', { exact: true }).waitFor();
  await page.goto(`${agent.url}/#/runs/profiles/USER:small`);
  await page.getByRole('link', { name: 'Its runs' }).click();
  await page.getByText('3 runs', { exact: true }).waitFor();
  await page.getByLabel(/^Search/).fill('no-such-program');
  await page.getByText('No run matches.').waitFor();
  await page.getByLabel(/^Search/).fill('nosuchfield=1');
  await page.getByRole('alert').waitFor();
  await page.goto(`${agent.url}/#/run/${encodeURIComponent(evil)}`);
  await page.getByRole('alert').waitFor();
  await page.goto(`${agent.url}/#/runs/programs/${encodeURIComponent(evil)}`);
  await page.getByRole('alert').waitFor();
  await b.good('run-missing');
  assert.deepEqual(b.complaints('422', '404'), []);
});

test('a viewer can order nothing, and somebody without a right reads why', async () => {
  const { id } = await run();
  const other = await b.as('rita', 'read');
  try {
    await other.goto(`${agent.url}/#/run/${id}`);
    await other.getByText(/^The nodes are kept, and are deleted in /).waitFor();
    for (const name of ['Extend', 'Delete the nodes …', 'Stop …']) assert.equal(await other.getByRole('button', { name }).count(), 0);
    const refused = await other.evaluate((id) => fetch(`/v1/runs/${id}/deprovision`, { method: 'POST', headers: { 'Coopr-Csrf': '1' } }).then((r) => r.status), id);
    assert.equal(refused, 403);
  } finally {
    await other.context().close();
  }
  const file = join(agent.dir, 'ned.cedar');
  writeFileSync(file, '@message("ned has no business here")\nforbid (principal is User, action, resource is Run) when { principal.name == "ned" };\n');
  const ned = await b.as('ned', 'user');
  try {
    await agent.coopr('policy', 'put', 'ned', file);
    await ned.goto(`${agent.url}/#/runs`);
    await ned.getByText('There are no runs.').waitFor(); // lists leave out what somebody may not see
    await ned.goto(`${agent.url}/#/run/${id}`);
    await ned.getByRole('alert').waitFor();
  } finally {
    await ned.context().close();
  }
});
