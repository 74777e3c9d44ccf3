"""A small made-up file of each format: what it says is worked out by hand in the tests that use it."""

from __future__ import annotations

import json
from pathlib import Path

SEMEVAL = """\
1\t"The <e1>storm</e1> caused a <e2>flood</e2>."
Cause-Effect(e1,e2)
Comment: none

2\t"A <e1>letter</e1> came from the <e2>king</e2>."
Other
Comment:

"""

TACRED = json.dumps(
    [
        {
            "id": "1",
            "docid": "news-7",
            "relation": "per:employee_of",
            "token": ["Ada", "King", "-LRB-", "of", "Zorb", "-RRB-"],
            **{"subj_start": 0, "subj_end": 1, "obj_start": 4, "obj_end": 4},
            **{"subj_type": "PERSON", "obj_type": "ORGANIZATION"},
            "stanford_pos": ["NNP", "NNP", "-LRB-", "IN", "NNP", "-RRB-"],
            "stanford_ner": ["PERSON", "PERSON", "O", "O", "ORGANIZATION", "O"],
            "stanford_head": [0, 1, 5, 5, 2, 5],
            "stanford_deprel": ["ROOT", "flat", "punct", "case", "nmod", "punct"],
        },
        {
            "id": "2",
            "docid": "news-8",
            "relation": "no_relation",
            "token": ["Bo", "left", "Zorb", "."],
            **{"subj_start": 2, "subj_end": 2, "obj_start": 0, "obj_end": 0},
            **{"subj_type": "ORGANIZATION", "obj_type": "PERSON"},
        },
    ],
    indent=1,
)

SPERT = json.dumps(
    [
        {
            "tokens": ["Zorbine", "causes", "blue", "ears", "."],
            "entities": [
                {"type": "Effect", "start": 2, "end": 4},
                {"type": "Drug", "start": 0, "end": 1},
            ],
            "relations": [{"type": "Adverse-Effect", "head": 0, "tail": 1}],
            "orig_id": 7,
        }
    ]
)

CONLL04 = """\
0\tPeop\t0\tO\tNNP/NNP\tAda/King\tO\tO\tO
0\tO\t1\tO\tVBD\tlived\tO\tO\tO
0\tO\t2\tO\tIN\tin\tO\tO\tO
0\tLoc\t3\tO\tNNP\tZorb\tO\tO\tO
0\tO\t4\tO\tCOMMA\tCOMMA\tO\tO\tO
0\tLoc\t5\tO\tNNP/,/NNP\tHux/COMMA/Old\tO\tO\tO

0\t3\tLive_In
3\t5\tLocated_In

1\tPeop\t0\tO\tNNP\tBo\tO\tO\tO
1\tO\t1\tO\tVBD\tleft\tO\tO\tO

"""

DDI = """\
<?xml version="1.0" encoding="UTF-8"?>
<document id="DDI.d1">
  <sentence id="DDI.d1.s0" text="Zorbine raises calvex; avoid mirotol.">
    <entity id="DDI.d1.s0.e0" charOffset="0-6" type="drug" text="Zorbine"/>
    <entity id="DDI.d1.s0.e1" charOffset="15-20" type="brand" text="calvex"/>
    <entity id="DDI.d1.s0.e2" charOffset="29-35" type="drug" text="mirotol"/>
    <pair id="DDI.d1.s0.p0" e1="DDI.d1.s0.e0" e2="DDI.d1.s0.e1" ddi="true" type="mechanism"/>
    <pair id="DDI.d1.s0.p1" e1="DDI.d1.s0.e0" e2="DDI.d1.s0.e2" ddi="false"/>
  </sentence>
</document>
"""

PPI = """\
,docid,isValid,passage,passageid
0,AIMed.d0,True,"PROTEIN1-induced PROTEIN, then PROTEIN2.",AIMed.d0.s5
1,LLL.d3,False,PROTEIN2 and PROTEIN1 alone.,LLL.d3.s1
2,LLL.d3,False,PROTEIN1 in another.,LLL.d3.s2
"""

BIOC_XML = """\
<?xml version="1.0"?>
<collection><source>made up</source>
<document><id>11</id>
 <passage><offset>0</offset><text>Zorbine eases gloom.</text>
  <annotation id="1"><infon key="type">Chemical</infon><infon key="identifier">D01</infon>
   <location offset="0" length="7"/><text>Zorbine</text></annotation>
 </passage>
 <passage><offset>21</offset><text>It brings on hot-head.</text>
  <annotation id="2"><infon key="type">Disease</infon><infon key="identifier">D91</infon>
   <location offset="34" length="8"/><text>hot-head</text></annotation>
  <annotation id="3"><infon key="type">Chemical</infon><infon key="identifier">D01</infon>
   <location offset="21" length="2"/><text>It</text></annotation>
 </passage>
 <relation id="R1"><infon key="type">CID</infon><infon key="novel">Novel</infon>
  <node refid="3" role="Chemical"/><node refid="2" role="Disease"/></relation>
</document></collection>
"""

BIOC_JSON = json.dumps(
    {
        "documents": [
            {
                "id": "11",
                "passages": [
                    {
                        "offset": 0,
                        "text": "Zorbine eases gloom.",
                        "annotations": [
                            {
                                "id": "1",
                                "infons": {"type": "Chemical", "identifier": "D01"},
                                "text": "Zorbine",
                                "locations": [{"offset": 0, "length": 7}],
                            },
                            {
                                "id": "2",
                                "infons": {"type": "Disease", "identifier": "D90"},
                                "text": "gloom",
                                "locations": [{"offset": 14, "length": 5}],
                            },
                        ],
                    }
                ],
                "relations": [
                    {
                        "id": "R0",
                        "infons": {"type": "Treats", "entity1": "D01", "entity2": "D90", "novel": "No"},
                        "nodes": [],
                    }
                ],
            }
        ]
    }
)

# As PubTator 3 exports it: relations name ids, with the type before them, and nodes that count entities.
BIOC_PUBTATOR3 = """\
<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE collection SYSTEM "BioC.dtd">
<collection><source>PubTator</source><date/><key>BioC.key</key>
<document><id>12</id>
 <passage><infon key="type">title</infon><offset>0</offset><text>Zorbine eases gloom.</text>
  <annotation id="1"><infon key="identifier">MESH:D01</infon><infon key="type">Chemical</infon>
   <location offset="0" length="7"/><text>Zorbine</text></annotation>
  <annotation id="2"><infon key="identifier">MESH:D90</infon><infon key="type">Disease</infon>
   <location offset="14" length="5"/><text>gloom</text></annotation>
 </passage>
 <relation id="R1"><infon key="score">0.9</infon><infon key="role1">Chemical|MESH:D01</infon>
  <infon key="role2">Disease|MESH:D90</infon><infon key="type">Negative_Correlation</infon>
  <node refid="0" role="0,1"/></relation>
</document></collection>
"""

BRAT_TXT = "Zorbine eases gloom.\nIt brings on hot-head, old man.\n"
BRAT_ANN = """\
T1\tDrug 0 7\tZorbine
T2\tIll 14 19\tgloom
T3\tDrug 21 23\tIt
T4\tIll 34 42\thot-head
R1\tTreats Arg1:T1 Arg2:T2\t
R2\tCauses Arg1:T3 Arg2:T4
R3\tCauses Arg1:T1 Arg2:T4
N1\tReference T1 MESH:D01\tzorbine
N2\tReference T2 MESH:D90\tgloom
N3\tReference T4 MESH:D91\thot-head
*\tEquiv T1 T3
A1\tNegated R2
#1\tAnnotatorNotes T1\tsure?
"""

GDA = {
    "abstracts.txt": "77\nZab in gloom.\nThe gene ZAB1 and gloom, but not hot-head.\n\n78\nNothing.\nHere.\n",
    "anns.txt": (
        "77\t0\t3\tZab\tGene\t101\n77\t7\t12\tgloom\tDisease\tD90\n"
        "77\t23\t27\tZAB1\tGene\t101\n77\t32\t37\tgloom\tDisease\tD90\n"
        "77\t47\t55\thot-head\tDisease\tD91\n\n"
    ),
    "labels.csv": "pmid,geneId,diseaseId,label\n77,101,D90,1\n77,101,D91,0\n",
}

CSV = """\
id,sentence,drug,illness,label,ward
1,"Zorbine, they say, eases gloom.",zorbine,gloom,treats,north
2,Nobody took calvex for hot-head.,calvex,hot-head,none,south
"""

JUDGED_TOKENS = """\
[{"sentence": "Ada Byron left Old Town .", "head": {"word": "Ada Byron", "pos": [0, 1]},
  "tail": {"word": "Old Town", "pos": [3, 4]}, "relation": "/lived_in", "is_noise": false},
 {"sentence": "Bo saw Ada .", "head": {"word": "Ada", "pos": [2, 2]}, "tail": {"word": "Bo", "pos": [0, 0]},
  "relation": "NA", "is_noise": true}]
"""

JUDGED_LINES = "".join(
    f'g1\tg2\t0\t/lived_in\t{verdict}\t"In [Old Town]2 , they saw [Ada]1 ."'
    '\tAda\tOld Town\t"In Old Town , they saw Ada ."\n'
    for verdict in ("y", "n", "indirect", "", "??")
)

_SNIPPET = (
    '{"pred": "/degree", "sub": "/m/1", "obj": "/m/2", "evidences": [{"url": "http://en.example.org/wiki/NAME",'
    ' "snippet": "TEXT"}], "judgments": [VOTES]}\n'
)
_VOTE = '{"rater": "7", "judgment": "%s"}'
JUDGED_SNIPPETS = "".join(
    _SNIPPET.replace("NAME", name)
    .replace("TEXT", text)
    .replace("VOTES", ", ".join(_VOTE % one for one in votes))
    for name, text, votes in (
        (
            "Ada_Byron_%28poet%29",
            "Miss Byron got a ((NAM: B.A.)) and a ((NAM: M.A.)) there.",
            ["yes", "yes", "no"],
        ),
        ("Bo_Li", "She never got her ((NAM: B.A.)).", ["no", "skip", "no"]),
        ("Cy_Ko", "Cy Ko has a ((NAM: B.A.)).", ["yes", "no", "skip"]),
    )
)

ONE_FILE = {
    "judged-tokens": JUDGED_TOKENS,
    "judged-lines": JUDGED_LINES,
    "judged-snippets": JUDGED_SNIPPETS,
    "semeval": SEMEVAL,
    "tacred": TACRED,
    "spert": SPERT,
    "conll04": CONLL04,
    "ddi": DDI,
    "ppi": PPI,
    "bioc": BIOC_JSON,
    "bioc-sentences": BIOC_XML,
}


def write_brat(folder: Path, ann: str = BRAT_ANN, txt: str = BRAT_TXT) -> Path:
    folder.mkdir(parents=True)
    (folder / "note.txt").write_text(txt)
    (folder / "note.ann").write_text(ann)
    return folder


def write_gda(folder: Path, **changes: str) -> Path:
    folder.mkdir(parents=True)
    for name, content in GDA.items():
        (folder / name).write_text(changes.get(name.partition(".")[0], content))
    return folder
