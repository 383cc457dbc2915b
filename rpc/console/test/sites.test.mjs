// Change objects: what they wait for, how they do, and their generations.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { Agent, Browser } from './world.mjs';

const evil = '<img src=x onerror=alert(1)>\u202e';

let agent;
let b;
let page;
let ok; // a file without which the store does not start

before(async () => {
  agent = await Agent.start();
  ok = join(agent.dir, 'ok');
  b = await Browser.start(agent);
  page = b.page;
  await b.home();
});
after(async () => {
  await b?.close();
  await agent?.close();
});

const heading = (name) => b.heading(name);
const row = (name) => page.getByRole('row').filter({ has: page.getByRole('rowheader', { name, exact: true }) });

/** apply applies a generation of the site, in which the front has a version. */
async function apply(version, ...more) {
  const [{ name }] = await agent.api('GET', '/v1/members');
  const host = `agent:${name}`;
  const script = (start) => ({ type: 'script', host, content: { start, stop: 'true', version } });
  const objects = [
    { name: 'front', ...script(`echo '${evil}'`), requires: [{ to: 'up', object: 'store' }], holds: [{ object: 'store' }] },
    { name: 'store', type: 'script', host, content: { start: `[ -e '${ok}' ] || { echo '${evil}'; exit 1; }`, stop: 'true' } },
    { name: 'clock', type: 'script', host, content: { start: 'true', stop: 'true' } },
    ...more.map((name) => ({ name, type: 'script', host, content: { start: 'true', stop: 'true' } })),
  ];
  await agent.api('PUT', '/v1/sites/shop', { name: 'shop', objects });
  return host;
}

test('without sites, the page says what to do', async () => {
  await page.getByRole('navigation', { name: 'Main' }).getByRole('link', { name: 'Change objects' }).click();
  await heading('Change objects');
  await page.getByText('There are no sites.').waitFor();
  await page.getByText('live', { exact: true }).waitFor();
  await b.good('sites-empty');
  assert.deepEqual(b.complaints(), []);
});

test('objects are shown as they do, with what they wait for', async () => {
  const host = await apply('1');
  await row('shop').getByText('of 3 objects converged').waitFor(); // without a reload
  await b.good('sites');
  await page.getByRole('link', { name: 'shop' }).click();
  await heading('Site shop');
  await row('store').getByText('failed', { exact: true }).waitFor();
  await row('store').getByText(evil).waitFor();
  await row('clock').getByText('converged', { exact: true }).waitFor();
  await row('front').getByText('waits until store is up').waitFor();
  // Failures are first.
  assert.equal(await page.locator('tbody tr').first().getByRole('rowheader').innerText(), 'store');
  await page.getByRole('button', { name: 'Why: front' }).click();
  const chain = page.getByRole('listitem').filter({ has: page.locator('b') });
  await chain.nth(1).getByText('store', { exact: true }).waitFor();
  assert.match(await chain.first().innerText(), /^front waits until store is up/);
  await b.good('site-chain');
  await page.getByLabel('Situation').selectOption('waiting');
  await page.getByText('1 object', { exact: true }).waitFor();
  await page.getByLabel('Situation').selectOption('not converged');
  await page.getByText('2 objects', { exact: true }).waitFor();
  await page.getByRole('combobox', { name: 'Host' }).selectOption(host);
  await page.getByLabel(/^Search/).fill('no such object');
  await page.getByText('No object matches.').waitFor();
  await page.reload(); // the filters are in the link
  await page.getByText('No object matches.').waitFor();
  await page.goto(`${agent.url}/#/site/shop?object=front`);
  writeFileSync(ok, '');
  // Without a reload: each report is shown.
  await page.getByText('all 3 converged', { exact: true }).waitFor();
  await page.getByText('It waits for nothing').waitFor();
  await b.good('site');
  assert.equal(await page.locator('main img').count(), 0);
  assert.deepEqual(b.complaints(), []);
});

test('generations are compared, and one is reverted to after a question', async () => {
  await apply('2', 'lamp');
  await page.getByRole('tab', { name: 'Objects' }).focus();
  await page.keyboard.press('ArrowRight');
  await page.getByRole('tab', { name: 'Generations', selected: true }).waitFor();
  await row('2').getByText('in force', { exact: true }).waitFor();
  await page.getByRole('button', { name: 'Compare generation 1 with the newest' }).click();
  await page.getByRole('heading', { name: 'From generation 2 to 1' }).waitFor();
  await page.getByRole('heading', { name: 'Removed: lamp' }).waitFor();
  const lines = (await page.getByLabel('Changed: front').innerText()).split('\n').filter((l) => /^[-+]/.test(l));
  assert.deepEqual(lines, ['-     "version": "2"', '+     "version": "1"']);
  await page.getByRole('heading', { name: 'A possible order' }).waitFor();
  await page.getByText(/^front: outdated → up on agent:/).waitFor();
  await b.good('site-compare');
  await page.getByRole('button', { name: 'Revert to generation 1 …' }).click();
  await page.getByRole('dialog').getByText('A new generation with the content of generation 1').waitFor();
  await b.good('site-revert');
  await page.getByRole('dialog').getByRole('button', { name: 'Revert to generation 1' }).click();
  await page.getByRole('dialog').waitFor({ state: 'hidden' });
  await row('3').getByText('goes back to 1').waitFor();
  await row('3').getByText('in force', { exact: true }).waitFor();
  await b.good('site-generations');
  await page.getByRole('button', { name: 'Compare generation 1 with the newest' }).click();
  await page.getByText('Both have the same objects.').waitFor();
  assert.deepEqual(b.complaints(), []);
});

test('a viewer can revert nothing, and who may not list sites reads why', async () => {
  const rita = await b.as('rita', 'read');
  try {
    await rita.goto(`${agent.url}/#/site/shop?tab=generations&to=2`);
    await rita.getByRole('heading', { name: 'Removed: lamp' }).or(rita.getByRole('heading', { name: 'Added: lamp' })).waitFor();
    assert.equal(await rita.getByRole('button', { name: /^Revert/ }).count(), 0);
    assert.equal(await rita.getByRole('alert').count(), 0);
    const revert = () => fetch('/v1/sites/shop/revert', { method: 'POST', headers: { 'Coopr-Csrf': '1', 'Content-Type': 'application/json' }, body: '{}' });
    assert.equal(await rita.evaluate(`(${revert})().then((r) => r.status)`), 403);
  } finally {
    await rita.context().close();
  }
  const file = join(agent.dir, 'ned.cedar');
  writeFileSync(file, 'forbid (principal is User, action, resource is Site) when { principal.name == "ned" };\n');
  await agent.coopr('policy', 'put', 'ned', file);
  const ned = await b.as('ned', 'user');
  try {
    await ned.goto(`${agent.url}/#/sites`);
    await ned.getByRole('alert').getByText('policy ned forbids it').waitFor();
    await ned.goto(`${agent.url}/#/site/shop`);
    await ned.getByRole('alert').waitFor();
  } finally {
    await ned.context().close();
  }
  await page.goto(`${agent.url}/#/site/${encodeURIComponent(evil)}`);
  await page.getByRole('alert').waitFor();
  await page.goto(`${agent.url}/#/site/shop?tab=generations&to=99`);
  await page.getByRole('alert').waitFor();
  await page.goto(`${agent.url}/#/sites?q=nosuchfield=1`);
  await page.getByRole('alert').waitFor();
  await page.getByLabel(/^Search/).fill('no-such-site');
  await page.getByText('No site matches.').waitFor();
  b.complaints('404', '422', '403');
});

test('the page shows that its site is gone', async () => {
  await page.goto(`${agent.url}/#/site/shop`);
  await heading('Site shop');
  await agent.coopr('change', 'delete', 'shop', '--yes');
  await page.getByRole('alert').waitFor();
  b.complaints('404');
});
