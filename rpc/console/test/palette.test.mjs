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
  // It is closed and opened as fast as a keyboard can.
  await page.evaluate(() => {
    const key = () => document.activeElement.dispatchEvent(new KeyboardEvent('keydown', { key: 'k', ctrlKey: true, bubbles: true, cancelable: true }));
    key();
    key();
  });
  await eventually('it is empty again', async () => (await field().inputValue()) === '');
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

const tab = (name) => page.getByRole('navigation', { name: 'Access' }).getByRole('link', { name, exact: true }).click();
const row = (name) => page.getByRole('row').filter({ has: page.getByRole('rowheader', { name, exact: true }) });
const counted = (words) => page.getByText(words, { exact: true }).waitFor();

test('users, their groups, what is shared, and policies are shown', async () => {
  await agent.api('POST', '/v1/users', { name: 'ann', role: 'admin', groups: ['devs', 'editor'], password: 'four random words here', description: evil });
  await agent.api('POST', '/v1/users', { name: 'ci', role: 'read', groups: ['devs'], method: 'account' });
  await agent.api('POST', '/v1/grants', { to: 'group/devs', actions: ['read', 'operate'], resource: 'cluster/my-shop', ttl: '2h' });
  await press('g');
  await press('a');
  await b.heading('Access');
  await tab('Users');
  await counted('3 users');
  await row('ci').getByText('none: service account').waitFor();
  await row('ann').getByText(evil).waitFor();
  await agent.api('PUT', '/v1/users/uma', { disabled: true });
  await row('uma').getByText('disabled', { exact: true }).waitFor(); // without a reload
  await b.good('access-users');
  await row('ann').getByRole('link', { name: 'editor' }).click();
  await counted('1 user');
  await find('ci');
  await page.getByRole('listbox').getByRole('option').filter({ has: page.getByText('user', { exact: true }) }).click();
  await counted('1 user');
  await row('ci').waitFor();
  await tab('Groups');
  await row('devs').waitFor();
  assert.deepEqual(await row('devs').getByRole('cell').allInnerTexts().then((all) => all.slice(0, 2)), ['group', '2']);
  await row('tenant-admin').getByText('role', { exact: true }).waitFor();
  await b.good('access-groups');
  await row('devs').getByRole('link', { name: /^what is shared/ }).click();
  await counted('1 grant');
  await page.getByRole('cell', { name: /operate/ }).waitFor();
  await b.good('access-grants');
  await page.getByRole('link', { name: 'my-shop', exact: true }).click();
  await b.heading('Cluster my-shop');
  await page.goto(`${agent.url}/#/access/policies`);
  await page.getByText('There are no policy documents').waitFor();
  await agent.api('POST', '/v1/policies', { name: 'no-deletion',
    text: '@message("keep <b>it</b>") forbid (principal == User::"ann", action == Action::"delete", resource is Cluster);' });
  await agent.api('POST', '/v1/mesh/policies', { name: 'auditors', text: 'permit (principal in Group::"default/devs", action == Action::"list", resource is Site);' });
  await counted('2 documents');
  assert.match(await row('auditors').innerText(), /\tmesh\t/);
  await row('no-deletion').getByText('Show').click();
  await row('no-deletion').getByText('@message').waitFor();
  await b.good('access-policies');
  await page.getByRole('link', { name: 'no-deletion' }).click();
  await b.heading('no-deletion');
  for (const kind of ['users', 'grants', 'policies', 'tokens']) {
    await page.goto(`${agent.url}/#/access/${kind}?q=nosuchfield%3D1`);
    await page.getByRole('alert').waitFor();
    await page.goto(`${agent.url}/#/access/${kind}?q=${encodeURIComponent('"|,<b>')}`);
    await page.getByText('Nothing matches.').waitFor();
  }
  assert.equal(await page.locator('main img').count(), 0);
  assert.deepEqual(b.complaints('422'), []);
});

test('who may do what, and which rule says so', async () => {
  await page.goto(`${agent.url}/#/access/can-i`);
  const ask = async (action, resource, as) => {
    await page.getByLabel('Action').selectOption(action);
    await page.getByLabel('Resource').fill(resource);
    await page.getByLabel('As', { exact: true }).fill(as);
    await page.keyboard.press('Enter');
  };
  await ask('delete', 'cluster/my-shop', 'ann');
  await page.getByRole('heading', { name: 'ann may not do it' }).waitFor();
  await page.getByText('a forbid of the tenant', { exact: true }).waitFor();
  await page.getByText(/keep <b>it<\/b>/).waitFor();
  assert.equal(await page.locator('.command code').innerText(), 'coopr auth can-i delete cluster/my-shop --as ann');
  await b.good('access-may-not');
  await page.reload(); // the question is in the link
  await page.getByRole('heading', { name: 'ann may not do it' }).waitFor();
  await ask('operate', 'cluster/my-shop', 'ci');
  await page.getByRole('heading', { name: 'ci may do it' }).waitFor();
  const { id } = (await agent.api('GET', '/v1/grants'))[0];
  await page.getByRole('link', { name: id }).click();
  await counted('1 grant');
  await page.goBack();
  await page.getByRole('heading', { name: 'ci may do it' }).waitFor();
  await ask('delete', 'clutser/my-shop', 'ci');
  await page.getByRole('alert').getByText(/cluster/).waitFor();
  assert.equal(await page.getByRole('heading', { name: /do it$/ }).count(), 0);
  await ask('list', 'template', '');
  await page.getByRole('heading', { name: /may do it$/ }).waitFor();
  assert.deepEqual(b.complaints('422'), []);
});

test('everybody sees and revokes their own tokens, and administrators those of others', async () => {
  const bob = await b.as('bob', 'user');
  try {
    await bob.goto(`${agent.url}/#/access`);
    await bob.getByRole('cell', { name: 'session', exact: true }).waitFor();
    const tabs = await bob.getByRole('navigation', { name: 'Access' }).getByRole('link').allInnerTexts();
    assert.deepEqual(tabs, ['Tokens', 'Grants', 'Who may?']);
    assert.equal(await bob.getByLabel('Whose').count(), 0);
    const make = (description) => fetch('/v1/self/tokens', {
      method: 'POST', body: JSON.stringify({ description, role: 'read' }), headers: { 'Coopr-Csrf': '1', 'Content-Type': 'application/json' },
    }).then((r) => r.json()).then((t) => t.id);
    const [laptop, phone] = [await bob.evaluate(make, 'laptop'), await bob.evaluate(make, 'phone')];
    await bob.reload(); // events of tokens are for administrators
    await bob.getByText('3 tokens', { exact: true }).waitFor();
    await bob.getByRole('button', { name: `Revoke token ${laptop}` }).click();
    await bob.getByRole('dialog').getByRole('button', { name: 'Revoke' }).click();
    await bob.getByText('2 tokens', { exact: true }).waitFor();
    for (const kind of ['users', 'groups', 'policies']) {
      await bob.goto(`${agent.url}/#/access/${kind}`);
      await bob.getByRole('alert').waitFor();
    }
    await bob.goto(`${agent.url}/#/access?whose=all`);
    await bob.getByRole('alert').waitFor();

    await page.goto(`${agent.url}/#/access`);
    await page.getByLabel('Whose').selectOption("everybody's");
    await page.getByLabel(/^Search/).fill('bob');
    await counted('2 tokens');
    await b.good('access-tokens');
    await page.getByRole('button', { name: `Revoke token ${phone}` }).click();
    await page.getByRole('dialog').getByText(`Revoke token ${phone}?`).waitFor();
    await b.good('access-revoke');
    await page.getByRole('dialog').getByRole('button', { name: 'Revoke' }).click();
    await counted('1 token');
    // The session of the browser itself.
    await bob.goto(`${agent.url}/#/access/tokens`);
    await bob.getByText('1 token', { exact: true }).waitFor();
    await bob.getByRole('button', { name: /^Revoke token/ }).click();
    await bob.getByRole('dialog').getByRole('button', { name: 'Revoke' }).click();
    await bob.getByText('The session has ended: log in again.').waitFor();
  } finally {
    await bob.context().close();
  }
  assert.deepEqual(b.complaints(), []);
});
