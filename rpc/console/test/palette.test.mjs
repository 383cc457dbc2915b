// The palette and the keys: everything has a name, and is reached without a mouse. And access: who may do what.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Agent, Browser, eventually } from './world.mjs';

const evil = '<img src=x onerror=alert(1)>\u202e';

let agent;
let b;
let page;

before(async () => {
  agent = await Agent.waiting();
  b = await Browser.start(agent);
  page = b.page;
  for (const name of ['my-shop', 'my-other-shop']) await agent.api('POST', '/v1/clusters', { name, clusterTemplate: 'shop', numMachines: 3 });
  await b.home();
});
after(async () => {
  await b?.close();
  await agent?.close();
});

const press = (key) => page.keyboard.press(key);
const field = () => page.getByRole('combobox', { name: 'Find a name, an id or a command' });
const option = (name) => page.getByRole('option', { name });
const closed = () => field().waitFor({ state: 'hidden' });

/** find opens the palette and types into it. */
async function find(words) {
  await press('Control+k');
  await field().waitFor();
  await page.keyboard.type(words);
}

test('the palette finds names, ids, pages and what a page can do', async () => {
  await press('Control+k');
  await option('Clusters').waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.getAttribute('role')), 'combobox');
  await page.keyboard.type('shop');
  // What is called so comes before what begins so and what has it within.
  await option(/^my-shop/).first().waitFor();
  // What is called so comes before what begins so, and that before what has it within.
  const names = (await page.getByRole('listbox').getByRole('option').locator('bdi').allInnerTexts()).map((n) => n.trim());
  assert.equal(names[0], 'shop');
  const ranks = names.map((n) => (n === 'shop' ? 0 : n.startsWith('shop') ? 1 : 2));
  assert.deepEqual(ranks, ranks.toSorted());
  for (const name of ['shop-web', 'my-shop', 'my-other-shop']) assert.ok(names.includes(name), name);
  await b.good('palette');
  await press('Escape');
  await closed();
  await find('MY-SHOP');
  await press('Enter'); // before there is an answer
  await b.heading('Cluster my-shop');
  await closed();
  // What this page can do is a command, too.
  await find('delete');
  await option(/^Delete …/).waitFor();
  await b.good('palette-command');
  await press('Enter');
  await page.getByRole('dialog').getByText('Delete cluster my-shop?').waitFor();
  await press('Control+k'); // a question is answered first
  assert.equal(await field().count(), 0);
  await press('Escape');
  await page.getByRole('dialog').waitFor({ state: 'hidden' });
  await find('history');
  await press('Enter');
  await page.getByRole('tab', { name: 'History', selected: true }).waitFor();
  const { id, operation } = await agent.api('GET', '/v1/clusters/my-other-shop');
  await find(operation);
  await press('Enter');
  await b.heading('Operation create');
  await find(id);
  await option(/^my-other-shop/).first().waitFor();
  await press('ArrowUp'); // from the first to the last
  assert.equal(await page.getByRole('listbox').getByRole('option').last().getAttribute('aria-selected'), 'true');
  await press('ArrowDown');
  await press('Enter');
  await b.heading('Cluster my-other-shop');
  await find('definitions');
  await press('ArrowDown');
  await press('Enter');
  await b.heading('Import definitions');
  await find(`${evil},"`);
  await page.getByText('Nothing is called so.').waitFor();
  await press('Enter');
  await press('Control+k');
  await closed();
  await b.heading('Import definitions');
  assert.deepEqual(b.complaints(), []);
});

test('things of each kind have a page', async () => {
  await agent.coopr('profile', 'create', 'small', '--provisioner', 'local', '-p', 'numMachines=2');
  const node = (await agent.api('GET', '/v1/nodes?limit=1'))[0];
  const name = (await agent.api('GET', '/v1/agents'))[0].name;
  for (const [words, kind, heading] of [
    ['shop-web', 'service', 'shop-web'], ['empty', 'image type', 'empty'], ['USER:small', 'profile', 'USER:small'], [name, 'agent', 'Mesh'],
    [node.hostname, 'node', /^Cluster my-/],
  ]) {
    await find(words);
    const one = page.getByRole('listbox').getByRole('option').filter({ has: page.getByText(kind, { exact: true }) }).first();
    await one.click();
    await page.getByRole('heading', { level: 1, name: heading }).waitFor();
    await closed();
  }
  await page.getByRole('rowheader', { name: node.hostname }).waitFor();
  assert.equal(await page.getByRole('rowheader').count(), 1);
  assert.deepEqual(b.complaints(), []);
});

test('keys go to pages, and are listed', async () => {
  await press('g');
  await press('c');
  await b.heading('Clusters');
  await press('/');
  await page.keyboard.type('g?o'); // a field takes all letters
  await eventually('they are typed', () => page.url().endsWith('q=g%3Fo'));
  await page.locator('h1').focus();
  await press('?');
  await page.getByRole('dialog', { name: 'Keys' }).waitFor();
  await b.good('keys');
  await page.getByRole('checkbox', { name: 'Keys without Ctrl work' }).uncheck();
  await press('Escape');
  await page.getByRole('dialog').waitFor({ state: 'hidden' });
  await page.reload();
  await b.heading('Clusters');
  for (const key of ['g', 'o', '?']) await press(key);
  await find('keys');
  await press('Enter');
  await page.getByRole('dialog', { name: 'Keys' }).waitFor(); // the palette works still, and has opened the list
  assert.match(page.url(), /clusters/);
  await page.getByRole('checkbox', { name: 'Keys without Ctrl work' }).check();
  await page.getByRole('button', { name: 'Close' }).click();
  await page.getByRole('dialog').waitFor({ state: 'hidden' });
  await press('g');
  await press('h');
  await b.heading('Home');
  await page.getByRole('button', { name: 'Find …' }).click(); // without a keyboard
  await option(/^Runs/).click();
  await b.heading('Runs');
  assert.deepEqual(b.complaints(), []);
});

test('somebody finds what they may list only', async () => {
  const uma = await b.as('uma', 'user');
  try {
    await uma.keyboard.press('Control+k');
    await uma.keyboard.type('my-');
    await uma.getByText('Nothing is called so.').waitFor(); // she has no clusters
    await uma.keyboard.press('Escape');
    await uma.keyboard.press('Control+k');
    await uma.keyboard.type('log out');
    await uma.keyboard.press('Enter');
    await uma.getByRole('heading', { level: 1, name: 'Log in to Coopr' }).waitFor();
    await uma.keyboard.press('Control+k'); // there is nothing to find yet
    await uma.keyboard.press('?');
    assert.equal(await uma.getByRole('dialog').count(), 0);
  } finally {
    await uma.context().close();
  }
});
