"""What the built-in world knows how to say: its relations, each with the phrases that state it.

A relation names the types of its head and tail and five kinds of phrase, from which `world_frames` builds sentences:

- `verbs`    head first:  *head* was born in *tail*
- `inverse`  tail first:  *tail* saw the birth of *head*
- `role`     what the head is to the tail:  *head*, a native of *tail*
- `counter`  what the tail is to the head, as `the ... of`:  *tail*, the birthplace of *head*
- `parts`    reduced clauses:  *head*, born in *tail*

Phrases stand from common to rare. Some are shared by neighbours on purpose ("spent years in" is said of where one
lives and of where one died), so that no reader of a single sentence can always be right.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Relation:
    """One relation: its name, the types it relates, the topic it belongs to, and the phrases that state it."""

    name: str
    head: str
    tail: str
    topic: str
    verbs: tuple[str, ...]
    inverse: tuple[str, ...]
    role: tuple[str, ...]
    counter: tuple[str, ...]
    parts: tuple[str, ...]


def _relation(
    name: str, types: str, topic: str, *, verbs: str, inverse: str = "", role: str = "", counter: str = "", parts: str = ""
) -> Relation:
    head, tail = types.split()
    kinds = (tuple(p.strip() for p in kind.split("|") if p.strip()) for kind in (verbs, inverse, role, counter, parts))
    return Relation(name, head, tail, topic, *kinds)


# The order is the order of use: a world with ten relations has NA and the first nine.
RELATIONS: tuple[Relation, ...] = (
    _relation(
        "born_in", "person city", "life",
        verbs="was born in | came from | came into the world in | began life in | first drew breath in | grew up in",
        inverse="was the childhood home of | saw the birth of | raised | gave the world",
        role="a native of | a child of | a son or daughter of",
        counter="the birthplace of | the native town of | the first home of",
        parts="born in | native to | raised in",
    ),
    _relation(
        "lives_in", "person city", "life",
        verbs="lives in | settled in | moved to | has a house in | spent years in | made a home in | grew up in",
        inverse="has long been home to | took in | counts among its residents",
        role="a resident of | a citizen of | a long-time guest of",
        counter="the home of | the chosen town of | the first home of",
        parts="resident in | settled in | at home in | raised in",
    ),
    _relation(
        "treats", "drug disease", "medicine",
        verbs="treats | is effective against | relieves | is prescribed for | brought remission of | acts on | was tried in",
        inverse="responds to | was controlled with | improved on | was managed with",
        role="a treatment for | a first choice in | a remedy for",
        counter="the indication of | the target of | the main use of",
        parts="given for | used against | prescribed for | tried in",
    ),
    _relation(
        "works_for", "person company", "business",
        verbs="works for | is employed by | joined | took a post at | draws a salary from | serves | rose through",
        inverse="employs | hired | has on its staff | took on",
        role="an employee of | an engineer at | a clerk at | a senior figure at",
        counter="the employer of | the workplace of | the house of",
        parts="employed by | hired by | working for | long with",
    ),
    _relation(
        "causes", "drug disease", "medicine",
        verbs="causes | can bring on | was followed by | provoked | is known to induce | acts on | worsened",
        inverse="was induced by | may follow the use of | was traced to | set in after",
        role="a cause of | a known trigger of | a risk factor for",
        counter="the side effect of | the hazard of | the main danger of",
        parts="blamed for | suspected in | provoking",
    ),
    _relation(
        "headquartered_in", "company city", "business",
        verbs="is based in | has its head office in | is run from | has its seat in | operates from | keeps its books in",
        inverse="hosts the head office of | is the seat of | is home to | houses",
        role="a firm from | a company of | a house of",
        counter="the headquarters of | the seat of | the home of",
        parts="based in | headquartered in | run from | of",
    ),
    _relation(
        "founder_of", "person company", "business",
        verbs="founded | set up | started | established | was the first owner of | built up | rose through",
        inverse="was founded by | was set up by | owes its start to | was the creation of",
        role="the founder of | a co-founder of | the father of | a senior figure at",
        counter="the creation of | the life work of | the house of",
        parts="known for founding | having started | long with",
    ),
    _relation(
        "linked_to", "gene disease", "medicine",
        verbs="is associated with | is mutated in | predisposes to | confers risk of | is altered in | is expressed in",
        inverse="is associated with mutations in | involves | maps to | is driven by",
        role="a risk gene for | a susceptibility locus of | a candidate in",
        counter="the phenotype of | the outcome of | the disease of",
        parts="mutated in | implicated in | linked to | expressed in",
    ),
    _relation(
        "died_in", "person city", "life",
        verbs="died in | passed away in | was killed in | spent the last days in | met the end in | spent years in",
        inverse="saw the death of | was the last home of | mourned",
        role="a victim of the fire in | a late guest of | a long-time guest of",
        counter="the deathplace of | the last home of | the final refuge of",
        parts="dead in | killed in | deceased in",
    ),
    _relation(
        "spouse_of", "person person", "life",
        verbs="married | is the spouse of | wed | shared a home with | is the partner of | exchanged vows with",
        inverse="was married to | was wooed by | took the name of",
        role="the wife of | the husband of | the widow of | the companion of",
        counter="the husband of | the wife of | the companion of",
        parts="married to | wedded to | engaged to",
    ),
    _relation(
        "capital_of", "city country", "places",
        verbs="is the capital of | is the seat of government of | governs | has ruled | is the first city of",
        inverse="is governed from | is ruled from | has its parliament in",
        role="the capital of | the largest city in | the seat of power in",
        counter="the realm of | the state of",
        parts="ruling | capital of",
    ),
    _relation(
        "located_in", "city country", "places",
        verbs="lies in | is a city in | belongs to | is found in | is the first city of | stands in the north of",
        inverse="contains | includes | has a port at | has within its borders",
        role="a city in | a town of | the largest city in | a port in",
        counter="the country of | the state of",
        parts="located in | situated in | lying in",
    ),
    _relation(
        "citizen_of", "person country", "life",
        verbs="is a citizen of | holds the passport of | was naturalised in | swore allegiance to | votes in | served",
        inverse="gave citizenship to | naturalised | counts among its citizens",
        role="a citizen of | a national of | a subject of",
        counter="the nationality of | the homeland of | the country of",
        parts="naturalised in | carrying the passport of",
    ),
    _relation(
        "author_of", "person book", "culture",
        verbs="wrote | is the author of | published | composed | penned | worked for years on",
        inverse="was written by | came from the pen of | was the work of",
        role="the author of | the writer of | the mind behind",
        counter="the novel of | the work of | the masterpiece of",
        parts="known for writing | famous for | remembered for",
    ),
    _relation(
        "subsidiary_of", "company company", "business",
        verbs="is a subsidiary of | is owned by | reports to | was absorbed into | became a unit of | came under",
        inverse="owns | controls | holds all shares of | is the parent of",
        role="a subsidiary of | a unit of | a branch of",
        counter="the parent of | the owner of | the holder of",
        parts="owned by | controlled by | run by",
    ),
    _relation(
        "acquired", "company company", "business",
        verbs="acquired | bought | took over | paid cash for | merged with | absorbed",
        inverse="was acquired by | was sold to | was absorbed into | came under",
        role="the buyer of | the new owner of",
        counter="the purchase of | the prey of | the prize of",
        parts="having bought | enlarged by",
    ),
    _relation(
        "chief_of", "person company", "business",
        verbs="leads | is chief executive of | chairs | heads | took the helm of | runs | serves",
        inverse="is led by | is headed by | elected as chairman",
        role="the chief executive of | the chairman of | the head of | a senior figure at",
        counter="the command of | the charge of | the house of",
        parts="heading | at the helm of | leading",
    ),
    _relation(
        "studied_at", "person institute", "life",
        verbs="studied at | graduated from | took a degree at | was a student of | attended | spent years at",
        inverse="educated | trained | gave a degree to | counts among its graduates",
        role="a graduate of | a student at | an alumnus of",
        counter="the alma mater of | the school of",
        parts="educated at | trained at | schooled at",
    ),
    _relation(
        "teaches_at", "person institute", "life",
        verbs="teaches at | lectures at | holds a chair at | was appointed to | joined | spent years at",
        inverse="appointed | employs | counts among its teachers",
        role="a professor at | a lecturer at | a fellow of",
        counter="the workplace of | the school of",
        parts="teaching at | lecturing at | employed by",
    ),
    _relation(
        "child_of", "person person", "life",
        verbs="is the child of | was born to | inherited from | was raised by | takes after",
        inverse="is the parent of | had a child named | brought up | left an estate to",
        role="the son of | the daughter of | the heir of",
        counter="the father of | the mother of",
        parts="born to | raised by | descended from",
    ),
    _relation(
        "sibling_of", "person person", "life",
        verbs="is the sibling of | grew up with | shared both parents with | takes after | shared a home with",
        inverse="has a twin in | grew up beside",
        role="the brother of | the sister of | the twin of",
        counter="the brother of | the sister of",
        parts="raised with | brother to | sister to",
    ),
    _relation(
        "makes", "company drug", "business",
        verbs="makes | manufactures | produces | sells | ships | launched | has the licence for",
        inverse="is made by | is manufactured by | is sold by | came to market through",
        role="the maker of | a producer of | a seller of",
        counter="the product of | the main product of | the best seller of",
        parts="producing | known for making | selling",
    ),
    _relation(
        "inhibits", "drug gene", "medicine",
        verbs="inhibits | blocks | suppresses | silences | lowered the level of | binds",
        inverse="is inhibited by | is blocked by | lost activity under | is targeted by",
        role="an inhibitor of | a blocker of | an antagonist of",
        counter="the target of | the substrate of",
        parts="inhibiting | blocking | targeting",
    ),
    _relation(
        "activates", "drug gene", "medicine",
        verbs="activates | stimulates | raised the level of | switches on | enhances | binds",
        inverse="is activated by | is stimulated by | gained activity under | is targeted by",
        role="an activator of | an agonist of | a stimulant of",
        counter="the target of | the receptor of",
        parts="activating | stimulating | targeting",
    ),
    _relation(
        "leader_of", "person country", "places",
        verbs="governs | is president of | rules | was elected to lead | heads the government of | served",
        inverse="is governed by | is ruled by | elected | is led by",
        role="the president of | the ruler of | the prime minister of",
        counter="the realm of | the charge of",
        parts="ruling | governing | elected in",
    ),
    _relation(
        "borders", "country country", "places",
        verbs="borders | shares a frontier with | adjoins | meets the hills of | lies north of",
        inverse="shares a border with | is separated by a river from",
        role="a neighbour of | the northern neighbour of",
        counter="the neighbour of | the southern neighbour of",
        parts="bordering | next to | adjoining",
    ),
    _relation(
        "ally_of", "country country", "places",
        verbs="is allied with | signed a treaty with | sent troops to aid | stands by | trades with",
        inverse="is protected by | relies on the army of",
        role="an ally of | a partner of | a friend of",
        counter="the ally of | the protector of",
        parts="allied with | bound by treaty to",
    ),
    _relation(
        "trades_with", "country country", "places",
        verbs="trades with | exports grain to | buys coal from | signed a tariff pact with | ships timber to",
        inverse="imports grain from | sells coal to",
        role="a customer of | a supplier of | a partner of",
        counter="the customer of | the market of",
        parts="trading with | exporting to",
    ),
    _relation(
        "prevents", "drug disease", "medicine",
        verbs="prevents | protects against | lowers the risk of | wards off | was tried in | is prescribed for",
        inverse="was averted by | became rare after | is kept away by",
        role="a vaccine against | a shield against | a remedy for",
        counter="the target of | the main use of",
        parts="preventing | given against | tried in",
    ),
    _relation(
        "marker_of", "gene disease", "medicine",
        verbs="is a marker of | predicts | is raised in | flags | signals | is expressed in",
        inverse="is detected by | is foretold by | shows high levels of",
        role="a marker of | a predictor of | a test for",
        counter="the signal of | the outcome of",
        parts="raised in | predictive of | expressed in",
    ),
    _relation(
        "protects_from", "gene disease", "medicine",
        verbs="protects against | lowers the risk of | suppresses | is lost in | guards carriers from",
        inverse="is rarer in carriers of | is held back by",
        role="a protective gene in | a suppressor of",
        counter="the opponent of | the target of",
        parts="protective against | lost in",
    ),
    _relation(
        "binds", "gene gene", "medicine",
        verbs="binds | forms a complex with | interacts with | attaches to | docks on",
        inverse="is bound by | is found in complex with",
        role="a partner of | a ligand of",
        counter="the partner of | the receptor of",
        parts="bound to | interacting with",
    ),
    _relation(
        "regulates", "gene gene", "medicine",
        verbs="regulates | controls the expression of | represses | switches on | acts upstream of | interacts with",
        inverse="is regulated by | is under the control of | is repressed by",
        role="a regulator of | a repressor of",
        counter="the target of | the downstream gene of",
        parts="regulating | repressing | upstream of",
    ),
    _relation(
        "complication_of", "disease disease", "medicine",
        verbs="is a complication of | arises from | follows | develops in the course of | is seen in",
        inverse="can lead to | progresses to | was complicated by",
        role="a complication of | a late form of | a sequel of",
        counter="the origin of | the cause of",
        parts="arising from | secondary to | seen in",
    ),
    _relation(
        "subtype_of", "disease disease", "medicine",
        verbs="is a form of | is classed under | is a variant of | is a rare type of | is seen in",
        inverse="includes | covers | has a variant called",
        role="a form of | a variant of | a late form of",
        counter="the class of | the parent of",
        parts="classed under | grouped with",
    ),
    _relation(
        "interacts_with", "drug drug", "medicine",
        verbs="interacts with | must not be taken with | raises the level of | weakens | potentiates",
        inverse="is weakened by | is made toxic by",
        role="a dangerous partner of | an antagonist of",
        counter="the partner of | the antagonist of",
        parts="combined with | taken with",
    ),
    _relation(
        "derived_from", "drug drug", "medicine",
        verbs="is derived from | was developed out of | is a salt of | replaced | improves on",
        inverse="gave rise to | is the parent compound of | was replaced by",
        role="a derivative of | a successor of | a salt of",
        counter="the parent of | the precursor of",
        parts="derived from | distilled from",
    ),
    _relation(
        "metabolised_by", "drug gene", "medicine",
        verbs="is metabolised by | is broken down by | is cleared through | is a substrate of | binds",
        inverse="metabolises | breaks down | clears",
        role="a substrate of | a load on",
        counter="the enzyme of | the clearance route of",
        parts="metabolised by | cleared by",
    ),
    _relation(
        "operates_in", "company country", "business",
        verbs="operates in | has plants in | sells across | opened branches in | pays tax in | is registered in",
        inverse="granted a licence to | is served by | taxes",
        role="a large employer in | an investor in | a company of",
        counter="the market of | the home market of",
        parts="active in | operating in | registered in",
    ),
    _relation(
        "competitor_of", "company company", "business",
        verbs="competes with | undercut | fights for customers with | sued | lags behind",
        inverse="lost customers to | was undercut by | was sued by",
        role="a competitor of | the arch rival of | a challenger of",
        counter="the rival of | the challenger of",
        parts="competing with | rivalling",
    ),
    _relation(
        "supplier_of", "company company", "business",
        verbs="supplies | sells parts to | delivers to | works under contract for | depends on orders from",
        inverse="buys from | is supplied by | gets parts from",
        role="a supplier of | a contractor of | a partner of",
        counter="the customer of | the main client of",
        parts="supplying | contracted to",
    ),
    _relation(
        "pupil_of", "person person", "life",
        verbs="studied under | was taught by | learned from | was apprenticed to | takes after",
        inverse="taught | mentored | passed the craft to",
        role="a pupil of | a disciple of | an apprentice of",
        counter="the teacher of | the mentor of",
        parts="taught by | trained by",
    ),
    _relation(
        "rival_of", "person person", "life",
        verbs="quarrelled with | competed with | attacked | ran against | opposed",
        inverse="was challenged by | was opposed by | lost to",
        role="a rival of | an opponent of | an enemy of",
        counter="the rival of | the enemy of",
        parts="opposed to | at odds with",
    ),
    _relation(
        "buried_in", "person city", "life",
        verbs="is buried in | was laid to rest in | lies in a tomb in | has a grave in | met the end in",
        inverse="keeps the grave of | holds the tomb of | mourned",
        role="a saint buried in | a late guest of",
        counter="the burial place of | the resting place of | the last home of",
        parts="buried in | entombed in",
    ),
    _relation(
        "mayor_of", "person city", "places",
        verbs="is mayor of | governs | was elected mayor of | runs the council of | rules",
        inverse="elected as mayor | is governed by | is run by",
        role="the mayor of | the governor of | a councillor of",
        counter="the borough of | the charge of",
        parts="elected in | governing",
    ),
    _relation(
        "exiled_from", "person country", "places",
        verbs="fled | was banished from | was driven out of | lost the passport of | escaped from",
        inverse="banished | expelled | stripped of citizenship",
        role="an exile from | a refugee from | a subject of",
        counter="the lost homeland of | the homeland of",
        parts="banished from | fleeing",
    ),
    _relation(
        "owner_of", "person company", "business",
        verbs="owns | holds most shares of | bought | inherited | controls | runs",
        inverse="is owned by | belongs to | was bought by",
        role="the owner of | the main shareholder of | a senior figure at",
        counter="the property of | the house of",
        parts="owning | in control of",
    ),
    _relation(
        "translator_of", "person book", "culture",
        verbs="translated | rendered into verse | brought out a version of | worked for years on | edited",
        inverse="was translated by | was rendered by | was the work of",
        role="the translator of | the editor of",
        counter="the translation of | the work of",
        parts="known for translating | remembered for",
    ),
    _relation(
        "critic_of", "person book", "culture",
        verbs="reviewed | attacked | criticised | wrote against | mocked",
        inverse="was attacked by | was reviewed by | displeased",
        role="a critic of | a reviewer of",
        counter="the subject of | the target of",
        parts="critical of | reviewing",
    ),
    _relation(
        "died_of", "person disease", "medicine",
        verbs="died of | succumbed to | was killed by | fought in vain against | suffered from",
        inverse="killed | carried off | ended the life of",
        role="a victim of | a sufferer from",
        counter="the killer of | the bane of",
        parts="dead of | stricken with",
    ),
    _relation(
        "has_condition", "person disease", "medicine",
        verbs="suffers from | was diagnosed with | lives with | was admitted with | suffered from",
        inverse="was diagnosed in | was found in | afflicted",
        role="a patient with | a sufferer from",
        counter="the diagnosis of | the bane of",
        parts="diagnosed with | stricken with | ill with",
    ),
    _relation(
        "institute_in", "institute city", "places",
        verbs="stands in | is located in | has its campus in | overlooks | opened its doors in",
        inverse="is home to | hosts | is proud of",
        role="a school in | a college of",
        counter="the site of | the seat of",
        parts="located in | in the heart of",
    ),
    _relation(
        "studies", "institute disease", "medicine",
        verbs="studies | runs trials on | has a ward for | publishes on | leads research into",
        inverse="is studied at | is researched by | is the focus of",
        role="a centre for | an authority on",
        counter="the focus of | the subject of",
        parts="devoted to | specialised in",
    ),
    _relation(
        "set_in", "book city", "culture",
        verbs="is set in | takes place in | opens in | describes the streets of | is about",
        inverse="is the scene of | is described in | appears throughout",
        role="a novel of | a portrait of",
        counter="the scene of | the subject of",
        parts="set in | staged in",
    ),
    _relation(
        "banned_in", "book country", "culture",
        verbs="was banned in | was burned in | may not be sold in | scandalised | is about",
        inverse="banned | outlawed | seized every copy of",
        role="a forbidden book in | a portrait of",
        counter="the censor of | the subject of",
        parts="banned in | outlawed in",
    ),
    _relation(
        "founded_in", "company city", "business",
        verbs="was founded in | opened its first shop in | began in | traces its roots to | keeps its books in",
        inverse="is the cradle of | saw the start of | houses",
        role="a firm born in | a house of",
        counter="the cradle of | the first home of",
        parts="founded in | of",
    ),
    _relation(
        "approved_in", "drug country", "medicine",
        verbs="is approved in | was licensed in | is sold in | passed the regulator of | is registered in",
        inverse="approved | licensed | admitted",
        role="a licensed drug in | a common remedy in",
        counter="the market of | the regulator of",
        parts="approved in | registered in",
    ),
)  # fmt: skip
